"""Imports from google-research/bert: the same weights as by way of Hugging Face."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.exchange import LoadedModel, open_foreign
from bert_jax.files.errors import UserError
from bert_jax.formats.names import bert as bert_names
from bert_jax.formats.weight_table import export_params, weights_sha256
from bert_jax.tools.convert.outputs import largest_differences, make_batch, run_ours
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.bundle_writer import write_bundle
from tests.tools.convert.hf_folders import CLASSES, PIECES, read_certificate, run_import

torch = pytest.importorskip("torch")


def from_google(folder: pathlib.Path, *words: str) -> LoadedModel:
    return run_import("from_google", folder, *words)


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForSequenceClassification"])
def test_google_names_and_layouts(google, name):
    folder, expected, model = google(name)
    run = from_google(folder)
    assert run.config.task == CLASSES[name][0]
    assert run.params.keys() == expected.params.keys()
    assert weights_sha256(run.params) == weights_sha256(expected.params)
    known = read_certificate(folder)["tensors"]["known_non_parameters"]
    assert len(known) == 2 * len(run.params) + 1
    assert max(read_certificate(folder)["comparison"]["largest_difference"].values()) < 1e-5
    batch = make_batch(PIECES, 40)
    inputs = torch.tensor(batch["input_ids"]).long()
    with torch.no_grad():
        states = model.bert(
            inputs,
            token_type_ids=torch.tensor(batch["token_type_ids"]).long(),
            attention_mask=torch.tensor(batch["example_ids"]),
            output_hidden_states=True,
        ).hidden_states
    ours = run_ours(run, batch)
    is_token = batch["example_ids"] > 0
    theirs = torch.stack(states).numpy()[:, is_token]
    np.testing.assert_allclose(ours.values["hidden states"], theirs, atol=1e-5)
    assert largest_differences(ours, ours)["hidden states"] == 0


@pytest.mark.parametrize(
    "words, activation, reason",
    [
        ([], "gelu_tanh", "lower cased, as the vocabulary has no upper-case letters"),
        (["--activation=gelu", "--nolowercase"], "gelu", "not lower cased, as you say"),
    ],
)
def test_choices_and_their_reasons_are_reported(google, words, activation, reason, capsys):
    folder, _, _ = google()
    run = from_google(folder, "--nocomparison", *words)
    assert run.config.model.activation == activation
    assert f"GELU: {activation}" in read_certificate(folder)["notes"][0]
    printed = capsys.readouterr().out
    assert f"GELU: {activation}" in printed and f"Text is {reason}" in printed


def test_google_without_a_vocabulary(google):
    folder, _, _ = google()
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="vocab.txt cannot be read: .*; name one with --vocab"):
        from_google(folder)


def test_google_with_an_unknown_tensor(google):
    folder, _, _ = google(**{"bert/x": np.ones(3, "f4")})
    with pytest.raises(ValueError, match=r"- bert/x: \[3\]"):
        from_google(folder)
    assert not (folder.parent / "out").exists()


def test_google_folders_with_several_checkpoints_or_none(google):
    folder, expected, _ = google()
    for end in ("index", "data-00000-of-00002", "data-00001-of-00002"):
        (folder / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-7.{end}")
    (folder / "other.index").touch()
    with pytest.raises(ValueError, match=r"several checkpoints: name one of .*model.ckpt-7"):
        from_google(folder)
    run = from_google(folder / "model.ckpt-7")
    assert weights_sha256(run.params) == weights_sha256(expected.params)
    (folder / "bert_config.json").unlink()
    with pytest.raises(UserError, match="bert_config.json is missing"):
        open_foreign(str(folder / "model.ckpt-7"), "google")


def test_a_real_tensorflow_checkpoint(shared_data, tmp_path):
    source = shared_data / "checkpoints/keras_bert_tiny_tf"
    run_command(["convert", "from_google", str(source), str(tmp_path / "out")])
    run = open_workdir(str(tmp_path / "out"))
    certificate = json.loads((tmp_path / "out/certificate.json").read_text())
    assert certificate["tensors"]["in"] == 139
    assert certificate["tensors"]["fresh"] == []
    assert certificate["parameters"] == sum(array.size for array in run.params.values()) == 701
    assert run.tokenizer.pieces[5:8] == ("all", "work", "and")
    assert max(certificate["comparison"]["largest_difference"].values()) < 1e-6


def test_bfloat16_of_tensorflow(google, tmp_path):
    folder, expected, _ = google()
    theirs = export_params(expected.params, bert_names.GOOGLE, "google")
    halves = {name: array.astype(ml_dtypes.bfloat16) for name, array in theirs.items()}
    for file in folder.glob("bert_model.ckpt.*"):
        file.unlink()
    write_bundle(folder / "bert_model.ckpt", halves)
    params = from_google(folder).params
    name = "bert/pooler/bias"
    np.testing.assert_array_equal(
        params[name], expected.params[name].astype(ml_dtypes.bfloat16).astype(np.float32)
    )
