"""Models of pairs are cross-encoders of sentence-transformers, with equal scores."""

import random
from collections import Counter

import jax
import numpy as np
import pandas
import pytest

import bert_jax
from bert_jax.data.labelled.examples import TextExample
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from tests import tiny
from tests.test_api import WORDS, files, model  # noqa: F401

torch = pytest.importorskip("torch")
sentence_transformers = pytest.importorskip("sentence_transformers")
RNG = random.Random(0)
PAIRS = [(" ".join(RNG.choices(WORDS, k=3)), " ".join(RNG.choices(WORDS, k=4))) for _ in range(40)]
SHARES = [len({*a.split()} & {*b.split()}) / 3 for a, b in PAIRS]
# The last document is cut off.
QUERY, DOCUMENTS = PAIRS[0][0], [*(text for _, text in PAIRS[:8]), " ".join(WORDS * 2)]


@pytest.fixture(params=["regression", "classification"])
def reranker(request, model, tmp_path):  # noqa: F811
    is_regression = request.param == "regression"
    labels = SHARES if is_regression else ["yes" if share > 0.4 else "no" for share in SHARES]
    return bert_jax.finetune(
        model,
        (PAIRS, labels),
        task=request.param,
        workdir=tmp_path / "run",
        listener=Listener(),
        epochs=1.0,
        optimizer__learning_rate=1e-2,
        task__pool="cls",
        task__pooler=True,
        max_length=14,
        prng_impl=tiny.PRNG_IMPL,
    )


def test_ranks_and_scores_are_those_of_the_exported_cross_encoder(reranker, tmp_path):
    reranker.export("huggingface", tmp_path / "exported")
    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "exported"))
    options = {} if reranker.task.kind == "regression" else {"apply_softmax": True}
    scores = theirs.predict([(QUERY, text) for text in DOCUMENTS], **options)
    scores = scores if scores.ndim == 1 else scores[:, 1]
    found = reranker.rank(QUERY, DOCUMENTS)
    assert [row["text"] for row in found] == [DOCUMENTS[row["corpus_id"]] for row in found]
    np.testing.assert_allclose(
        [row["score"] for row in found], [scores[row["corpus_id"]] for row in found], atol=1e-5
    )
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    assert reranker.rank(QUERY, DOCUMENTS, top_k=2) == found[:2]
    imported = bert_jax.load(tmp_path / "exported")
    np.testing.assert_allclose(
        [row["score"] for row in imported.rank(QUERY, DOCUMENTS)],
        [row["score"] for row in found],
        atol=1e-6,
    )


def test_other_models_do_not_rank(model):  # noqa: F811
    with pytest.raises(UserError, match="task.name='pretraining' does not rank texts"):
        model.rank(QUERY, DOCUMENTS)


def test_what_would_be_read_as_something_else_is_refused(reranker):
    table = pandas.DataFrame({"document": DOCUMENTS})
    assert reranker.rank(QUERY, table) == reranker.rank(QUERY, DOCUMENTS)
    for call, message in (
        (lambda: reranker.rank(QUERY, DOCUMENTS[0]), "not a single one"),
        (lambda: reranker.rank(QUERY, PAIRS), r"inputs\[0\] is a pair"),
        (lambda: reranker.rank(QUERY, DOCUMENTS, top_k=-1), "top_k=-1"),
        (lambda: reranker.predict(PAIRS[0]), "is one text, .* trained on pairs"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_a_cross_encoder_of_pairs_scores_and_trains_as_theirs(model, tmp_path):  # noqa: F811
    """Scores of an export, of an import, and the loss and gradient of a batch."""
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    ours = bert_jax.finetune(
        model,
        [{"anchor": a, "positive": b} for a, b in PAIRS],
        task="cross_encoder",
        workdir=tmp_path / "run",
        listener=Listener(),
        epochs=1.0,
        optimizer__learning_rate=1e-2,
        model__dropout_rate=0.0,
        model__attention_dropout_rate=0.0,
        task__pool="cls",
        task__pooler=True,
        prng_impl=tiny.PRNG_IMPL,
    )
    ours.export("huggingface", tmp_path / "exported")
    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "exported"), device="cpu")
    pairs = [(QUERY, text) for text in DOCUMENTS]
    expected = theirs.predict(pairs)
    theirs.save_pretrained(str(tmp_path / "saved"))
    for name in ("run", "exported", "saved"):
        found = [row["score"] for row in bert_jax.load(tmp_path / name).predict(pairs)]
        np.testing.assert_allclose(found, expected, atol=1e-5)

    task = ours.task.bind(ours.encoder, ours.tokenizer)
    examples = [
        TextExample("", "", a, b, ("1",), c)
        for (a, b), (_, c) in zip(PAIRS[:3], PAIRS[3:6], strict=True)
    ]
    rows = task.encode(examples, ours.tokenizer, Counter())
    batch = rows.take(np.arange(6), 16)

    def mean(params):
        outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
        found = task.losses(outputs, batch)["task_loss"]
        return found.numerator / found.denominator

    found, gradient = jax.jit(jax.value_and_grad(mean))(ours.params)
    theirs.train()
    texts = [(e.text_a, text) for e in examples for text in (e.text_b, e.negative)]
    labels = torch.tensor([1.0, 0.0] * 3)
    columns = [list(column) for column in zip(*texts, strict=True)]
    loss = BinaryCrossEntropyLoss(theirs)(columns, labels)
    loss.backward()
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    table = dict(theirs.named_parameters())
    for end, value in {
        "classifier.weight": gradient["classifier"]["kernel"].T,
        "word_embeddings.weight": gradient["bert"]["embeddings"]["word_embeddings"]["embedding"],
    }.items():
        (name,) = (name for name in table if name.endswith(end))
        grad = table[name].grad.numpy()
        np.testing.assert_allclose(np.asarray(value)[: len(grad)], grad, atol=1e-5)
