"""ColBERT and sentence-transformers: vectors, MaxSim, the loss of a batch and its gradient."""

from collections import Counter

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.labelled.examples import TextExample
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import (
    MULTI,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from bert_jax.scores import retrieval
from bert_jax.tasks.colbert.model import ColbertOutputs, max_similarities
from bert_jax.tools.convert import conversions
from bert_jax.training.workdir import open_workdir, write_labels
from tests.tools.convert.conftest import make_workdir, random_params  # noqa: F401
from tests.tools.convert.hf_folders import edit_config

TEXTS = ["the cat", "it is", "so", "so it", "jumps " * 9]
VECTORS = SentenceVectors(MULTI, True, 8, features=4, prompts={"query": "it is so: "})


@pytest.fixture
def trained(make_workdir):  # noqa: F811
    """The workdir of a run with random parameters."""
    values = {"task__features": 4, "max_length": 8, "model__next_sentence": False}
    values |= {"model__dropout_rate": 0.0, "model__attention_dropout_rate": 0.0}
    workdir = make_workdir(task="colbert", heads={"projection__kernel": (16, 4)}, **values)
    write_labels(str(workdir), ())
    write_sentence_vectors(VECTORS, str(workdir), 16)
    return workdir


def test_vectors_and_losses_are_those_of_sentence_transformers(trained, tmp_path):
    """Of an export, and after an import of it."""
    library = pytest.importorskip("sentence_transformers", minversion="6.0")
    from sentence_transformers.multi_vector_encoder import losses

    ours = bert_jax.load(trained, dtype="float32")
    ours.export("huggingface", tmp_path / "exported")
    theirs = library.MultiVectorEncoder(str(tmp_path / "exported"), device="cpu")
    expected = theirs.encode_document(TEXTS, convert_to_numpy=True)
    asked = theirs.encode_query(TEXTS, convert_to_numpy=True)
    conversions.convert(str(tmp_path / "exported"), str(tmp_path / "imported"), compare=False)
    assert open_workdir(str(tmp_path / "imported")).sentence_vectors == VECTORS
    for folder in (trained, tmp_path / "exported", tmp_path / "imported"):
        model = bert_jax.load(folder)
        for prompt, vectors in (("", expected), ("query", asked)):
            found = model.encode_multi(TEXTS, long="truncate", prompt=prompt)
            for one, other in zip(found, vectors, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-5, rtol=0)
    found = retrieval.max_similarities(*map(retrieval.ragged, (asked, expected)))
    np.testing.assert_allclose(found, theirs.similarity(asked, expected), atol=1e-5)

    triplets = [("the cat", "it is", "so"), ("so it", "it", "cat is")]
    theirs.train()
    loss = losses.MultiVectorMultipleNegativesRankingLoss(theirs)
    columns = zip(*triplets, strict=True)
    value = loss([theirs.preprocess(list(texts), task="document") for texts in columns])
    value.backward()

    task = ours.task.bind(ours.encoder, ours.tokenizer)
    examples = [TextExample("", "", *texts[:2], None, texts[2]) for texts in triplets]
    batch = task.encode(examples, ours.tokenizer, Counter()).take(np.arange(2), 24)

    def mean(params):
        outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
        found = task.losses(outputs, batch)["task_loss"]
        return found.numerator / found.denominator

    found, gradient = jax.jit(jax.value_and_grad(mean))(ours.params)
    np.testing.assert_allclose(found, value.item(), rtol=1e-5)
    table = dict(theirs.named_parameters())
    (name,) = (name for name in table if name.endswith("linear.weight"))
    np.testing.assert_allclose(
        gradient["projection"]["kernel"], table[name].grad.numpy().T, atol=1e-5
    )
    (name,) = (name for name in table if name.endswith("word_embeddings.weight"))
    found = gradient["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_allclose(found, table[name].grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("max_products", [1 << 25, 100])
def test_max_sim_by_plain_loops(max_products):
    """Also in parts."""
    rng = np.random.default_rng(0)
    is_token = np.arange(7) < rng.integers(1, 8, size=(3, 3, 1))
    vectors = rng.normal(size=(3, 3, 7, 5)).astype(np.float32) * is_token[..., None]
    found = jax.jit(max_similarities, static_argnums=1)(
        ColbertOutputs(vectors, is_token), max_products
    )
    texts = [[vectors[row, text][is_token[row, text]] for text in range(3)] for row in range(3)]
    candidates = [texts[row][text] for text in (1, 2) for row in range(3)]
    expected = [[sum(max(q @ d for d in c) for q in row[0]) for c in candidates] for row in texts]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("file", "values", "unknown"),
    [
        ("1_Dense/config.json", {"bias": True}, "has a module Dense with bias=True"),
        ("2_MultiVectorMask/config.json", {"skiplist_words": ["."]}, "skiplist_words=['.']"),
        ("sentence_bert_config.json", {"query_expansion": {"x": 1}}, "with query_expansion="),
        ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "meanmaxsim"),
        ("config_sentence_transformers.json", {"similarity_fn_name": None}, ""),
    ],
)
def test_which_settings_are_followed(tmp_path, file, values, unknown):
    write_sentence_vectors(VECTORS, str(tmp_path), 16)
    edit_config(tmp_path, file, **values)
    found = read_sentence_vectors(str(tmp_path))
    assert unknown in found.unknown and bool(found.unknown) == bool(unknown)


def test_what_does_not_fit_is_refused(trained, make_workdir):  # noqa: F811
    model = bert_jax.load(trained)
    with pytest.raises(UserError, match="gives a vector of each token: "):
        model.encode(TEXTS[:1])
    with pytest.raises(UserError, match="is for dense vectors, not those of ColBERT"):
        model.hidden_states(TEXTS[:1], multi=True, normalize=True)


def test_the_server_gives_a_vector_of_each_token(trained):
    pytest.importorskip("starlette", reason="needs the extra serve")
    from bert_jax.tools.serve.service import Service
    from tests.tools.serve.conftest import client_of, load_model

    client = client_of(Service(load_model(str(trained))))
    answer = client.post("/api/encode", json={"inputs": [{"text_a": "the cat"}]}).json()
    expected = bert_jax.load(trained).encode_multi(["the cat"])
    np.testing.assert_allclose(answer["vectors"], expected, atol=1e-6)
    assert "similarity" not in client.get("/api").json()["endpoints"]
