"""Scores of retrieval, where each query has one correct candidate, from its rank.

Candidates are ordered by the similarity of their vectors with the query's. The rank of the correct
one is the number of candidates that are at least as similar, so equal vectors have no
advantage.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Queries whose similarities with all candidates are in memory at a time.
_QUERIES = 1024
# Ranks of the correct candidates, int[queries] from 1 -> score.
METRICS: dict[str, Callable[[np.ndarray], float]] = {
    "mrr_at_10": lambda ranks: float(np.where(ranks <= 10, 1 / ranks, 0).mean()),
    # The ideal order has the only relevant candidate first, so its gain is 1.
    "ndcg_at_10": lambda ranks: float(np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0).mean()),
    "accuracy": lambda ranks: float((ranks == 1).mean()),
    "recall_at_10": lambda ranks: float((ranks <= 10).mean()),
}


def cosines(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Returns float[m, n] cosines of float[m, features] with float[n, features]."""
    return unit(queries) @ unit(candidates).T


def sparse_products(queries: Any, candidates: Any) -> np.ndarray:
    """Returns float[m, n] products of sparse arrays [m, features] with [n, features]."""
    return (queries @ candidates.T).toarray()


def ragged(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Returns an array of objects, [arrays], of arrays with different shapes."""
    found = np.empty(len(arrays), object)
    found[:] = arrays
    return found


def max_similarities(queries: Sequence[np.ndarray], candidates: Sequence[np.ndarray]) -> np.ndarray:
    """Returns float[m, n] sums, over a query's tokens, of the largest product with a candidate's.

    Args:
      queries, candidates: m and n arrays, float[tokens, features], each with at least one token.
    """
    tokens = np.concatenate([*candidates])
    starts = np.cumsum([0, *map(len, candidates)])[:-1]
    rows = [np.maximum.reduceat(query @ tokens.T, starts, axis=1).sum(axis=0) for query in queries]
    return np.stack(rows)


def rank_pairs(
    anchors: Sequence[str],
    positives: Sequence[str],
    first: Any,
    second: Any,
    similarities: Callable[[Any, Any], np.ndarray] = cosines,
) -> np.ndarray:
    """Returns int64[pairs], the rank of each anchor's own positive among all distinct positives.

    Not counted are other positives of an equal anchor, which are as good, and a positive with the
    text of the anchor itself.

    Args:
      anchors, positives: the two texts of each pair.
      first, second: their vectors, [pairs, ...].
      similarities: function of m queries and n candidates to float[m, n].
    """
    numbers = {text: number for number, text in enumerate(dict.fromkeys(positives))}
    own = np.array([numbers[text] for text in positives])
    places = np.unique(own, return_index=True)[1]
    candidates = second[places]
    left_out = {text: {numbers[text]} if text in numbers else set() for text in anchors}
    for anchor, number in zip(anchors, own.tolist(), strict=True):
        left_out[anchor].add(number)
    ranks = np.empty(len(own), np.int64)
    for start in range(0, len(own), _QUERIES):
        part = slice(start, start + _QUERIES)
        found = similarities(first[part], candidates)
        correct = np.take_along_axis(found, own[part, None], axis=1)
        is_before = found >= correct
        for row, anchor in enumerate(anchors[part]):
            is_before[row, list(left_out[anchor])] = False
        ranks[part] = 1 + is_before.sum(axis=1)
    return ranks


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors, float[..., features], scaled to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


# ------------------------------------------------------------------ several relevant candidates

# Maximum number of candidates of a query that RANKING_METRICS read.
READ = 100
# The relevance of candidates in their order, of all relevant ones in the best order -> score.
RANKING_METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ndcg_at_10": lambda found, ideal: _gain(found[:10]) / _gain(ideal[:10]),
    "mrr_at_10": lambda found, ideal: float(
        (_hits(found[:10]) / _places(found[:10])).max(initial=0)
    ),
    "map_at_100": lambda found, ideal: _average_precision(found[:100], len(ideal)),
    "recall_at_100": lambda found, ideal: float(_hits(found[:100]).sum() / len(ideal)),
    "accuracy": lambda found, ideal: float(_hits(found[:1]).sum()),
}


def order(scores: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Returns int64[candidates], the best score first; of equal ones, the least relevant first."""
    return np.lexsort((relevance, -scores))


def ranking_scores(found: Sequence[np.ndarray], ideal: Sequence[np.ndarray]) -> dict[str, float]:
    """Returns the means of RANKING_METRICS over queries, as trec_eval defines them.

    Args:
      found: float[ranked], the relevance of the candidates of each query in their order; 0: none.
      ideal: float[relevant], that of all relevant candidates of each query, the largest first.
    """
    return {
        name: float(np.mean([metric(*query) for query in zip(found, ideal, strict=True)]))
        for name, metric in RANKING_METRICS.items()
    }


def _places(found: np.ndarray) -> np.ndarray:
    return np.arange(1, len(found) + 1)


def _hits(found: np.ndarray) -> np.ndarray:
    return (found > 0).astype(float)


def _gain(found: np.ndarray) -> float:
    """Returns the discounted cumulative gain (Järvelin and Kekäläinen 2002)."""
    return float((found / np.log2(1 + _places(found))).sum())


def _average_precision(found: np.ndarray, relevant: int) -> float:
    hits = _hits(found)
    return float((hits * hits.cumsum() / _places(found)).sum() / relevant)
