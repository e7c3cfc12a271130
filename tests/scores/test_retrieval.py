"""Scores of retrieval against plain loops, and by hand."""

import math

import numpy as np
import pytest

from bert_jax.scores import retrieval


def rank_by_loops(anchors, positives, first, second):
    """One cosine after the other; what is as good as the own positive is no rival."""
    ranks, distinct = [], list(dict.fromkeys(positives))
    vectors = {text: vector for text, vector in reversed(list(zip(positives, second, strict=True)))}

    def cosine(a, b):
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    for anchor, positive, vector in zip(anchors, positives, first, strict=True):
        same = {p for a, p in zip(anchors, positives, strict=True) if a == anchor} | {anchor}
        own = cosine(vector, vectors[positive])
        rivals = [text for text in distinct if text not in same and text != positive]
        ranks.append(1 + sum(cosine(vector, vectors[text]) >= own for text in rivals))
    return ranks


@pytest.mark.parametrize("queries", [3, 1024])
def test_ranks_are_those_of_plain_loops(monkeypatch, queries):
    monkeypatch.setattr(retrieval, "_QUERIES", queries)
    rng = np.random.default_rng(0)
    anchors = [f"a{rng.integers(15)}" for _ in range(40)]
    positives = [str(rng.choice(["a3", "a4", *(f"p{i}" for i in range(20))])) for _ in range(40)]
    first = rng.standard_normal((40, 5))
    vectors = {text: rng.standard_normal(5) for text in positives}
    second = np.stack([vectors[text] for text in positives])
    ranks = retrieval.rank_pairs(anchors, positives, first, second)
    assert ranks.tolist() == rank_by_loops(anchors, positives, first, second)
    assert len(set(ranks.tolist())) > 5


def test_equal_vectors_have_the_last_rank():
    ones = np.ones((4, 3))
    assert retrieval.rank_pairs(list("abcd"), list("efgh"), ones, ones).tolist() == [4] * 4


def test_scores_of_ranks():
    ranks = np.array([1, 2, 10, 11])
    scores = {name: score(ranks) for name, score in retrieval.METRICS.items()}
    assert scores == pytest.approx(
        {
            "mrr_at_10": (1 + 1 / 2 + 1 / 10) / 4,
            "ndcg_at_10": (1 + 1 / math.log2(3) + 1 / math.log2(11)) / 4,
            "accuracy": 1 / 4,
            "recall_at_10": 3 / 4,
        }
    )
