"""Checkpoints that cannot be imported: one line that names the problem, and nothing is written."""

import pathlib

import numpy as np
import pytest

from bert_jax.training import workdir
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import edit, edit_config, from_hf

pytest.importorskip("safetensors.numpy")


def check_refused(folder: pathlib.Path, message: str, *words: str) -> None:
    """Checks for an error of one line, and that no file was written or removed."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ValueError, match=message) as error:
        from_hf(folder, *words)
    assert "\n" not in str(error.value)
    assert sorted(folder.parent.rglob("*")) == before


def drop(name):
    return lambda folder: edit(folder, lambda arrays: arrays.pop(name))


def put(name, array):
    return lambda folder: edit(folder, lambda arrays: arrays.update({name: array}))


def configure(**changes):
    return lambda folder: edit_config(folder, **changes)


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def to_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


BROKEN = {
    "missing tensor": (
        drop("bert.pooler.dense.bias"),
        r"theirs do not match .*\+ bert.pooler.dense.bias: \[16\]",
    ),
    "missing part of a head": (drop("cls.predictions.bias"), r"\+ cls.predictions.bias: \[57\]"),
    "another tensor": (put("bert.x", np.ones(3, "f4")), r"- bert.x: \[3\]"),
    "a layer too many": (
        configure(num_hidden_layers=1),
        r"- bert.encoder.layer.1.*; and \d+ more\.$",
    ),
    "a layer too few": (configure(num_hidden_layers=3), r"\+ bert.encoder.layer.2"),
    "another shape": (
        put("bert.pooler.dense.weight", np.ones((16, 8), "f4")),
        r"- bert.pooler.dense.weight: \[16, 8\]; \+ bert.pooler.dense.weight: \[16, 16\]",
    ),
    "NaN": (
        put("bert.pooler.dense.bias", np.array([np.nan, np.inf, *[0] * 14], "f4")),
        r"theirs: bert.pooler.dense.bias has 2 NaN or infinite values \(as float32\) of 16",
    ),
    "beyond float32": (
        put("bert.pooler.dense.bias", np.array([1e39, *[0] * 15], "f8")),
        r"bert.pooler.dense.bias has 1 NaN or infinite",
    ),
    "two names for one": (put("bert.embeddings.LayerNorm.gamma", np.ones(16, "f4")), "twice"),
    "vocabulary of another size": (configure(vocab_size=58), "57 pieces and the model 58"),
    "activation": (configure(hidden_act="relu"), "hidden_act='relu': only gelu, "),
    "another model": (configure(model_type="roberta"), "model_type='roberta': only 'bert'"),
    "positions": (configure(position_embedding_type="relative_key"), "only 'absolute'"),
    "decoder": (configure(is_decoder=True), "is_decoder=True"),
    "no size": (configure(hidden_size=None), "config.json lacks hidden_size"),
    "no number": (configure(hidden_size="16"), "hidden_size='16', which is not an integer"),
    "one segment": (configure(type_vocab_size=1), "type_vocab_size|token_type_embeddings"),
    "heads": (configure(num_attention_heads=3), "is not divisible by num_heads=3"),
    "truncated": (truncate, "truncated"),
    "pickle": (to_pickle, r"pytorch_model.bin is a pickle.*AutoModelForPreTraining"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
    "no vocabulary": (lambda f: (f / "vocab.txt").unlink(), "neither vocab.txt nor tokenizer.json"),
    "vocabulary without [MASK]": (
        lambda f: (f / "vocab.txt").write_text(VOCABULARY.replace("[MASK]", "x")),
        r"lacks \[MASK\]",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_invalid_checkpoint_is_reported_in_one_line(save, case):
    folder, _ = save()
    spoil, message = BROKEN[case]
    spoil(folder)
    check_refused(folder, message)


@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "bert.embeddings.position_ids"])
def test_a_duplicate_with_other_values_is_refused(save, name):
    folder, _ = save()

    def untie(arrays):
        words = arrays["bert.embeddings.word_embeddings.weight"]
        arrays[name] = words + 1 if "decoder" in name else np.arange(40)[::-1].copy()

    edit(folder, untie)
    check_refused(folder, f"{name} is expected to be .*has other values")


def test_an_existing_folder_is_not_overwritten(save):
    folder, _ = save()
    from_hf(folder)
    check_refused(folder, "out exists already")


def test_a_failed_import_leaves_no_files(save, monkeypatch):
    folder, _ = save()

    def fail(*_, **__):
        raise ValueError("no room")

    monkeypatch.setattr(workdir.Checkpoints, "save_params", fail)
    check_refused(folder, "no room")


def test_a_task_without_its_head_is_refused(save):
    folder, _ = save("BertForSequenceClassification", num_labels=3)

    def remove_head(arrays):
        del arrays["classifier.weight"], arrays["classifier.bias"]

    edit(folder, remove_head)
    check_refused(folder, "is a model for the task 'classification' and lacks classifier.bias")
