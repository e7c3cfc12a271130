"""bilm-tf's folders: reference embeddings, random weights with skip connections, every error."""

import json
import pathlib

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.exchange import open_foreign
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.formats.bilm import read_hdf5
from bert_jax.tools.convert import bilm_references
from bert_jax.tools.convert.conversions import convert
from tests.models import elmo_numpy
from tests.tools.convert.bilm_folder import make_weights, write_folder

REFERENCE = pathlib.Path(__file__).parents[3] / "../shared/data/checkpoints/elmo_bilm_tf/model"
needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="needs ../shared")


def characters_of(word):
    """bilm-tf's characters of a word, one higher, as its Batcher gives them."""
    data = list(word) if isinstance(word, list) else [byte + 1 for byte in word.encode()[:48]]
    return np.array(([259, *data, 260] + [261] * 50)[:50])


def sentence_of(text):
    return [characters_of(word) for word in ([257], *text.split(), [258])]


@needs_reference
def test_the_reference_embeddings_are_recomputed(tmp_path, capsys):
    pytest.importorskip("h5py", reason="needs the extra elmo")
    certificate = convert(str(REFERENCE), str(tmp_path / "run"), format="bilm")
    (difference,) = certificate["comparison"]["largest_difference"].values()
    assert 0 < difference <= 1e-6
    assert certificate["comparison"]["with"].startswith("30 sentences of lm_embeddings_sentences")
    assert f"last layer             {difference:.1e}" in capsys.readouterr().out
    assert certificate["tensors"]["in"] == 33
    assert certificate["tensors"]["fresh"] == ["softmax/bias", "softmax/kernel"]
    assert json.loads((tmp_path / "run/certificate.json").read_text()) == certificate


@needs_reference
def test_the_numpy_statement_gives_the_reference_embeddings_too():
    """Of the first batch, whose states are zero: it states the original's graph."""
    pytest.importorskip("h5py", reason="needs the extra elmo")
    weights = read_hdf5(str(REFERENCE / "lm_weights.hdf5"))
    (text, *_), *_ = json.loads((REFERENCE / "lm_embeddings_sentences.json").read_text())
    words = np.array([elmo_numpy.word_vector(weights, ids) for ids in sentence_of(text)])
    layers, _ = elmo_numpy.encode(weights, words, 2, skip=False)
    expected = read_hdf5(str(REFERENCE / "lm_embeddings_0.hdf5"))["0"]
    np.testing.assert_allclose(layers[-1][1:-1], np.concatenate([*expected], axis=1), atol=1e-6)


def test_weights_with_skip_connections_over_sentences_that_carry_states(tmp_path):
    folder = write_folder(tmp_path / "model")
    imported = open_foreign(str(folder))
    batches = [("A b", "Longer words here"), ("né n't <S>", "x")]
    weights, states = make_weights(), ({}, {})
    found = bilm_references.last_layers(imported, batches)
    for texts, outputs in zip(batches, found, strict=True):
        for place, text in enumerate(texts):
            sentence = sentence_of(text.replace("<S>", "<UNK>"))
            words = np.array([elmo_numpy.word_vector(weights, ids) for ids in sentence])
            layers, after = elmo_numpy.encode(weights, words, 2, states=states[place])
            states[place].update(after)
            both = np.concatenate([*outputs[place]], axis=1)
            np.testing.assert_allclose(both, layers[-1][1:-1], atol=2e-5)


def test_reference_files_that_differ_are_reported(tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs the extra elmo")
    folder = write_folder(tmp_path / "model")
    imported = open_foreign(str(folder))
    assert "has no lm_embeddings_N.hdf5" in bilm_references.compare(imported)["none_because"]
    (outputs,) = (batch[0] for batch in bilm_references.last_layers(imported, [("a b",)]))
    (folder / "sentences.json").write_text(json.dumps([["a b"]]))
    with h5py.File(folder / "lm_embeddings_0.hdf5", "w") as file:
        file["0"] = outputs + np.array([0, 0.25]).reshape(2, 1, 1)
    (difference,) = bilm_references.compare(imported)["largest_difference"].values()
    assert difference == pytest.approx(0.25)
    (folder / "sentences.json").write_text(json.dumps([["a b c"]]))
    with pytest.raises(ValueError, match="no embeddings .2, 3, 4. of sentence 0 .* not belong"):
        bilm_references.compare(imported)


def test_a_workdir_is_compared_with_the_folder_that_it_came_from(tmp_path, capsys):
    folder, run = write_folder(tmp_path / "model"), str(tmp_path / "run")
    convert(str(folder), run)
    other = make_weights()
    other["CNN_proj/b_proj"] = other["CNN_proj/b_proj"] + 0.5
    changed = write_folder(tmp_path / "changed", other)
    capsys.readouterr()
    found = []
    for b in (folder, changed):
        run_command(["convert", "verify", run, str(b)])
        line = next(x for x in capsys.readouterr().out.splitlines() if "hidden states" in x)
        found.append(float(line.split()[2]))
    assert found[0] == 0 and found[1] > 0.01


def test_a_folder_with_other_vocabularies_or_without_h5py(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "model")
    assert format_of(str(folder)) == "bilm"
    (folder / "vocab_2.txt").write_text("a")
    (folder / "vocab.txt").write_text("a")
    with pytest.raises(ValueError, match=r"several vocabularies \(vocab.txt, vocab_2.txt\)"):
        open_checkpoint(str(folder))
    (folder / "vocab_2.txt").unlink()
    checkpoint = open_checkpoint(str(folder))
    assert any("lacks <S>, </S>, <UNK>: added" in note for note in checkpoint.notes)
    assert checkpoint.vocabulary.content == b"a\n<S>\n</S>\n<UNK>\n"
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ValueError, match=r"h5py: pip install 'bert_jax\[elmo\]'"):
        open_checkpoint(str(folder))
