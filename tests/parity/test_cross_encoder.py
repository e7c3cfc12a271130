"""Models of pairs are cross-encoders of sentence-transformers, with equal scores."""

import random

import numpy as np
import pytest

import bert_jax
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from tests import tiny
from tests.test_api import WORDS, files, model  # noqa: F401

sentence_transformers = pytest.importorskip("sentence_transformers")
RNG = random.Random(0)
PAIRS = [(" ".join(RNG.choices(WORDS, k=3)), " ".join(RNG.choices(WORDS, k=4))) for _ in range(40)]
SHARES = [len({*a.split()} & {*b.split()}) / 3 for a, b in PAIRS]
QUERY, DOCUMENTS = PAIRS[0][0], [text for _, text in PAIRS[:8]]


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
