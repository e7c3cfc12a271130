"""Vectors of texts in sentence-transformers: of an exported run, and after an import of it."""

import json
import types

import numpy as np
import pytest

import bert_jax
from bert_jax.config.encoders import BertConfig
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import (
    ONLY,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from bert_jax.tools.convert import conversions
from bert_jax.training.workdir import open_workdir, write_labels
from tests.tools.convert.conftest import SIZES
from tests.tools.convert.hf_folders import edit_config, from_hf, read_certificate

TEXTS = ["the cat", "so it is", "", "jumps " * 9]
PROMPTS = {"query": "it is so: ", "passage": ""}


@pytest.mark.parametrize("pooling, normalize", [("mean", True), ("max", False), ("cls", True)])
def test_what_is_written_is_read(tmp_path, pooling, normalize):
    vectors = SentenceVectors(pooling, normalize, 30, "", PROMPTS, "query", normalize)
    write_sentence_vectors(vectors, str(tmp_path), 16)
    assert read_sentence_vectors(str(tmp_path)) == vectors


def test_sentence_transformers_computes_our_vectors(make_workdir, random_params, tmp_path):
    """From the workdir of a run, and again after an import, which keeps prompts and lengths."""
    library = pytest.importorskip("sentence_transformers")
    with_heads = random_params(
        types.SimpleNamespace(model=BertConfig(**SIZES, next_sentence=False))
    )
    params = {path: array for path, array in with_heads.items() if path.startswith("bert/")}
    workdir = make_workdir(params=params, task="embedding", task__pool="mean")
    write_labels(str(workdir), ())
    vectors = SentenceVectors("mean", True, 8, "", PROMPTS)
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


def test_a_module_that_is_not_known_is_refused_also_after_an_import(save, capsys):
    folder, _ = save("BertModel")
    write_modules(folder, "Transformer", "Pooling", "Dense")
    run = from_hf(folder)
    assert run.config.task.name == "pretraining"
    note = "modules.json has a module Dense, which is not done here: encode needs --pooling."
    assert note in read_certificate(folder)["notes"] and note in capsys.readouterr().out
    assert run.sentence_vectors.unknown == "has a module Dense"
    for source in (folder, folder.parent / "out"):
        with pytest.raises(UserError, match="has a module Dense, which is not done here"):
            bert_jax.load(source).encode(["a"])
        assert bert_jax.load(source).encode(["a"], pooling="mean").shape == (1, 16)


def write_modules(folder, *kinds):
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("kinds", "unknown"),
    [
        ("BERT Pooling", ""),
        ("Transformer Dropout Pooling Normalize", ""),
        ("Transformer Normalize Pooling", "has the modules Transformer, Normalize, Pooling in thi"),
        ("Transformer", "has the modules Transformer in this order"),
        ("Transformer Pooling Pooling", "has the modules"),
        ("WordEmbeddings Pooling", "has a module WordEmbeddings"),
    ],
)
def test_which_modules_are_followed(tmp_path, kinds, unknown):
    write_modules(tmp_path, *kinds.split())
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')  # mean by default
    found = read_sentence_vectors(str(tmp_path))
    assert found.unknown.startswith(unknown) and bool(found.unknown) == bool(unknown)
    assert (found.pooling == "mean") == ("Pooling" in kinds)


@pytest.mark.parametrize(
    ("file", "values", "unknown", "length"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": True}, "", 9),
        ("sentence_roberta_config.json", {"max_seq_length": 9}, "", 9),
        ("sentence_bert_config.json", {**ONLY, "query_length": None, "unpad_inputs": True}, "", 20),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task='f", 20),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "a SparseEnc", 20),
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim=8", 20),
        ("config_sentence_transformers.json", {"max_active_dims": 8}, "max_active_dims=8", 20),
    ],
)
def test_which_settings_are_followed(tmp_path, file, values, unknown, length):
    """Without max_seq_length, model_max_length is the longest."""
    write_modules(tmp_path, "Transformer", "Pooling")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 20}')
    (tmp_path / file).write_text(json.dumps(values))
    found = read_sentence_vectors(str(tmp_path))
    assert unknown in found.unknown and bool(found.unknown) == bool(unknown)
    assert found.max_length == length


def test_a_default_prompt_without_text_is_refused():
    vectors = SentenceVectors("mean", prompts=PROMPTS, default_prompt="document")
    with pytest.raises(UserError, match="default_prompt_name='document', which is none of its"):
        vectors.prompt("")
    assert vectors.prompt("query") == PROMPTS["query"]


def test_case_and_length_are_those_of_sentence_transformers(tmp_path):
    """A cased tokenizer behind do_lower_case, which keeps accents; model_max_length is 6."""
    library = pytest.importorskip("sentence_transformers")
    import torch
    import transformers

    torch.manual_seed(0)
    pieces = [*"[PAD] [UNK] [CLS] [SEP] [MASK] é e a A b ##b É".split()]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = transformers.BertTokenizer(vocab=ids, do_lower_case=False, model_max_length=6)
    tokenizer.save_pretrained(tmp_path)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(
        vocab_size=len(ids), num_hidden_layers=1, max_position_embeddings=40, **sizes
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    vectors = SentenceVectors("mean", True)
    write_sentence_vectors(vectors, str(tmp_path), 16)
    edit_config(tmp_path, "sentence_bert_config.json", do_lower_case=True)
    texts = ["É", "E e", "A b É abb a a a a a b b b"]
    expected = library.SentenceTransformer(str(tmp_path), device="cpu").encode(texts)
    conversions.convert(str(tmp_path), str(tmp_path / "out"), compare=False)
    for source in (tmp_path, tmp_path / "out"):
        found = bert_jax.load(source).encode(texts, long="truncate")
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
