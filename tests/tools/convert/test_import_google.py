"""Imports from google-research/bert: the same weights as by way of Hugging Face."""

import ml_dtypes
import numpy as np
import pytest

from bert_jax.exchange import open_foreign
from bert_jax.formats.foreign import Choices
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.tools.convert.conversions import convert
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.hf_folders import read_certificate, run_import, worst

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForSequenceClassification"])
def test_google_names_and_layouts(google, name):
    folder, expected = google(name)
    run, certificate = run_import("from_google", folder), read_certificate(folder)
    assert run.config.task.name == expected.config.task.name
    assert weights_sha256(run.trained_params) == weights_sha256(expected.trained_params)
    known = certificate["tensors"]["known_non_parameters"]
    assert len(known) == 2 * len(expected.trained_params) + 1
    assert worst(certificate) < 1e-5
    notes = "\n".join(certificate["notes"])
    assert "GELU: gelu_tanh" in notes
    assert "Text is lower cased, as the vocabulary has no upper-case letters" in notes
    names = ("LABEL_0", "LABEL_1", "LABEL_2") if run.config.task.name == "classification" else ()
    assert run.labels == names


def test_choices_take_precedence(google):
    loaded = open_foreign(str(google()[0]), choices=Choices(activation="gelu", lowercase=False))
    assert loaded.config.model.activation == "gelu"
    assert "not lower cased, as you say" in "\n".join(loaded.checkpoint.notes)


def test_google_folders_with_several_checkpoints(google):
    folder, expected = google()
    for end in ("index", "data-00000-of-00002", "data-00001-of-00002"):
        (folder / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-7.{end}")
    (folder / "other.index").touch()
    with pytest.raises(ValueError, match=r"several checkpoints: name one of .*model.ckpt-7"):
        open_foreign(str(folder))
    params = open_foreign(str(folder / "model.ckpt-7")).params
    assert weights_sha256(params) == weights_sha256(expected.params)


def test_bfloat16_of_tensorflow(google):
    folder, expected = google(dtype=ml_dtypes.bfloat16)
    name = "bert/pooler/bias"
    rounded = expected.params[name].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(open_foreign(str(folder)).params[name], rounded)


def test_a_real_tensorflow_checkpoint(shared_data, tmp_path):
    source = shared_data / "checkpoints/keras_bert_tiny_tf"
    certificate = convert(str(source), str(tmp_path / "out"))
    run = open_workdir(str(tmp_path / "out"))
    assert certificate["tensors"]["in"] == 139
    assert certificate["tensors"]["fresh"] == []
    assert certificate["parameters"] == sum(array.size for array in run.params.values()) == 701
    assert run.tokenizer.pieces[5:8] == ("all", "work", "and")
    assert worst(certificate) < 1e-6
