"""Vectors of texts in sentence-transformers: of an exported run, and after an import of it."""

import json
import types

import numpy as np
import pytest

import bert_jax
from bert_jax.config import store
from bert_jax.config.encoders import BertConfig
from bert_jax.formats.sentence_transformers import (
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from bert_jax.tools.convert import conversions
from bert_jax.training.workdir import open_workdir, write_labels
from tests.tools.convert.conftest import SIZES
from tests.tools.convert.hf_folders import from_hf, read_certificate

safetensors_numpy = pytest.importorskip("safetensors.numpy")
TEXTS = ["the cat", "so it is", "", "jumps " * 9]
PROMPTS = {"query": "it is so: ", "passage": ""}


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_what_is_written_is_read(tmp_path, pooling, normalize):
    vectors = SentenceVectors(pooling, normalize, 30, "", PROMPTS, "query", normalize)
    write_sentence_vectors(vectors, str(tmp_path), 16)
    assert read_sentence_vectors(str(tmp_path)) == vectors


@pytest.mark.parametrize("vectors", [SentenceVectors(), SentenceVectors("mean", unknown="has")])
def test_nothing_is_written_of_what_is_not_known(tmp_path, vectors):
    write_sentence_vectors(vectors, str(tmp_path), 16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pooling, normalize", [("mean", True), ("cls", False)])
def test_sentence_transformers_computes_our_vectors(
    make_workdir, random_params, tmp_path, pooling, normalize
):
    """From the workdir of a run, and again after an import, which keeps prompts and lengths."""
    library = pytest.importorskip("sentence_transformers")
    with_heads = random_params(
        types.SimpleNamespace(model=BertConfig(**SIZES, next_sentence=False))
    )
    params = {path: array for path, array in with_heads.items() if path.startswith("bert/")}
    workdir = make_workdir(params=params, task="embedding", head__pool=pooling)
    write_labels(str(workdir), ())
    vectors = SentenceVectors(pooling, normalize, 8, "", PROMPTS)
    write_sentence_vectors(vectors, str(workdir), 16)
    ours = bert_jax.load(workdir, dtype="float32")
    ours.export("huggingface", tmp_path / "exported")
    conversions.convert(str(tmp_path / "exported"), str(tmp_path / "imported"), compare=False)
    assert open_workdir(str(tmp_path / "imported")).sentence_vectors == vectors
    conversions.to_huggingface(str(tmp_path / "imported"), str(tmp_path / "again"), compare=False)
    for file in ("modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"):
        folders = (tmp_path / "exported", tmp_path / "again")
        assert len({(folder / file).read_bytes() for folder in folders}) == 1
    theirs = library.SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert theirs.prompts.items() >= PROMPTS.items()
    found, wanted = ours.encode(TEXTS, long="truncate"), theirs.encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)
    found = ours.encode(TEXTS, long="truncate", prompt="query", dimensions=5, normalize=True)
    theirs.truncate_dim = 5
    wanted = theirs.encode(TEXTS, prompt_name="query", normalize_embeddings=True)
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


def test_a_module_that_is_not_known_is_said_to_be_left_out(save, capsys):
    folder, _ = save("BertModel")
    modules = [{"type": f"st.{kind}", "path": ""} for kind in ("Transformer", "Dense")]
    (folder / "modules.json").write_text(json.dumps(modules))
    run = from_hf(folder)
    note = "modules.json has a module Dense, which is left out: vectors of texts will differ."
    assert note in read_certificate(folder)["notes"] and note in capsys.readouterr().out
    assert run.sentence_vectors == SentenceVectors()


def test_an_import_says_how_vectors_are_made(save):
    folder, _ = save("BertModel")
    write_sentence_vectors(SentenceVectors("max", True, 0, "", PROMPTS), str(folder), 16)
    from_hf(folder)
    note = "Vector of a text: max of the last hidden states, scaled to length 1; prompts query."
    assert note in read_certificate(folder)["notes"]
    assert store.load(str(folder.parent / "out")).task == "pretraining"
