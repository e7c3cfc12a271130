"""SPLADE and sentence-transformers: vectors, the loss of a batch and its gradient, both ways."""

import json
from collections import Counter

import jax
import numpy as np
import pytest
from scipy import sparse

import bert_jax
from bert_jax.__main__ import main
from bert_jax.data.labelled.examples import TextExample
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import (
    SPLADE,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from bert_jax.tools.convert import conversions
from bert_jax.training.workdir import open_workdir, write_labels
from tests.tools.convert.conftest import make_workdir, random_params  # noqa: F401
from tests.tools.convert.hf_folders import edit_config

TEXTS = ["the cat", "it is", "so", "so it", "jumps " * 9]
WEIGHTS = {"anchor_flops": 0.02, "positive_flops": 0.03}
VECTORS = SentenceVectors(SPLADE, max_length=8, prompts={"query": "it is so: "})


@pytest.fixture
def trained(make_workdir):  # noqa: F811
    """The workdir of a run with random parameters."""
    values = {f"task__{name}": value for name, value in WEIGHTS.items()}
    values |= {"task__temperature": 1.0, "max_length": 8, "model__next_sentence": False}
    values |= {"model__dropout_rate": 0.0, "model__attention_dropout_rate": 0.0}
    workdir = make_workdir(task="splade", **values)
    write_labels(str(workdir), ())
    write_sentence_vectors(VECTORS, str(workdir), 16)
    return workdir


def test_vectors_and_losses_are_those_of_sentence_transformers(trained, tmp_path):
    """Of an export, and after an import of it."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sparse_encoder import losses

    ours = bert_jax.load(trained, dtype="float32")
    ours.export("huggingface", tmp_path / "exported")
    theirs = library.SparseEncoder(str(tmp_path / "exported"), device="cpu")
    expected = theirs.encode(TEXTS).to_dense().numpy()
    asked = theirs.encode(TEXTS, prompt_name="query").to_dense().numpy()
    conversions.convert(str(tmp_path / "exported"), str(tmp_path / "imported"), compare=False)
    assert open_workdir(str(tmp_path / "imported")).sentence_vectors == VECTORS
    for folder in (trained, tmp_path / "exported", tmp_path / "imported"):
        model = bert_jax.load(folder)
        found = model.encode_sparse(TEXTS, long="truncate")
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-5, rtol=0)
        found = model.encode_sparse(TEXTS, long="truncate", prompt="query")
        np.testing.assert_allclose(found.toarray(), asked, atol=1e-5, rtol=0)
    assert theirs.similarity_fn_name == "dot" and 0 < found.nnz < expected.size

    pairs = [TEXTS[:2], TEXTS[2:4]]
    base = losses.SparseMultipleNegativesRankingLoss(theirs)
    theirs.train()
    loss = losses.SpladeLoss(theirs, base, WEIGHTS["positive_flops"], WEIGHTS["anchor_flops"])
    parts = loss([theirs.preprocess(list(texts)) for texts in zip(*pairs, strict=True)], None)
    sum(parts.values()).backward()

    task = ours.task.bind(ours.encoder, ours.tokenizer)
    examples = [TextExample("", "", *pair, None) for pair in pairs]
    batch = task.encode(examples, ours.tokenizer, Counter()).take(np.arange(2), 24)

    def total(params):
        outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
        sums = task.losses(outputs, batch)
        means = {name: item.numerator / item.denominator for name, item in sums.items()}
        return sum(means[name] for name in means if name.endswith("loss")), means

    (_, means), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(ours.params)
    for name, other in {
        "task_loss": "base_loss",
        "anchor_flops_loss": "query_regularizer_loss",
        "positive_flops_loss": "document_regularizer_loss",
    }.items():
        np.testing.assert_allclose(means[name], parts[other].item(), rtol=1e-5)
    table = dict(theirs.named_parameters())
    (name,) = (name for name in table if name.endswith("word_embeddings.weight"))
    found = gradient["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_allclose(found, table[name].grad.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("file", "values", "unknown"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "sum"}, "pools by sum and relu"),
        ("1_SpladePooling/config.json", {"activation_function": "x"}, "pools by max and x"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, ""),
        ("sentence_bert_config.json", {"transformer_task": "x"}, "with transformer_task='x'"),
        ("config_sentence_transformers.json", {"model_type": "x"}, "belongs to a x"),
    ],
)
def test_which_settings_are_followed(tmp_path, file, values, unknown):
    write_sentence_vectors(VECTORS, str(tmp_path), 16)
    edit_config(tmp_path, file, **values)
    found = read_sentence_vectors(str(tmp_path))
    assert unknown in found.unknown and bool(found.unknown) == bool(unknown)
    assert bool(found.pooling) == ("pools" not in unknown)


def test_hidden_states_are_no_logits(tmp_path):
    write_sentence_vectors(VECTORS, str(tmp_path), 16)
    modules = (tmp_path / "modules.json").read_text().replace("MLMTransformer", "Transformer")
    (tmp_path / "modules.json").write_text(modules)
    assert read_sentence_vectors(str(tmp_path)).unknown == "pools hidden states for sparse vectors"
    edit_config(tmp_path, "sentence_bert_config.json", transformer_task="fill-mask")
    assert read_sentence_vectors(str(tmp_path)) == VECTORS


def test_files_have_the_vectors(trained, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:2]) + "\n")
    model, words = bert_jax.load(trained), tmp_path / "words.jsonl"
    expected = model.encode_sparse(TEXTS[:2])
    command = ["encode", str(tmp_path / "texts.txt"), f"--model={trained}", "--sparse"]
    main([*command, f"--output={words}"])
    main([*command, f"--output={tmp_path / 'words.npz'}"])
    found = sparse.load_npz(str(tmp_path / "words.npz"))
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-6)
    for row, line in enumerate(words.read_text().splitlines()):
        weights = json.loads(line)
        assert list(weights.values()) == sorted(weights.values(), reverse=True)
        pieces = model.tokenizer.pieces
        names = [*pieces, *(f"[{i}]" for i in range(len(pieces), len(expected.toarray()[0])))]
        vector = expected.toarray()[row]
        named = {names[i]: vector[i] for i in np.flatnonzero(vector)}
        assert weights == pytest.approx(named, abs=1e-6)
    capsys.readouterr()
    main([*command, "--output=-"])
    assert capsys.readouterr().out.splitlines() == words.read_text().splitlines()


def test_what_does_not_fit_is_refused(trained, make_workdir, tmp_path):  # noqa: F811
    model = bert_jax.load(trained)
    with pytest.raises(UserError, match="gives sparse vectors: "):
        model.encode(TEXTS[:1])
    assert model.encode(TEXTS[:1], pooling="mean").shape == (1, 16)
    for choice in ({"normalize": True}, {"dimensions": 4}, {"layers": "all"}, {"long": "windows"}):
        with pytest.raises(UserError, match="is for dense vectors, not sparse ones"):
            model.hidden_states(TEXTS[:1], **{"level": "sentence", "sparse": True, **choice})
    with pytest.raises(UserError, match="gives sparse vectors"):
        model.export("onnx", tmp_path / "onnx")
