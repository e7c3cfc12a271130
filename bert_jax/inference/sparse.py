"""Sparse vectors of texts: weights of words, as dicts and as matrices."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def named_weights(vector: np.ndarray, pieces: Sequence[str]) -> dict[str, float]:
    """Returns token -> weight for the weights above 0, the largest first.

    Args:
      vector: float32[vocab_size].
      pieces: tokens by id; a model may have more rows than tokens: these are named by their id.
    """
    (ids,) = np.nonzero(vector)
    ids = ids[np.argsort(-vector[ids], kind="stable")]
    names: list[str] = [pieces[i] if i < len(pieces) else f"[{i}]" for i in map(int, ids)]
    return dict(zip(names, vector[ids].tolist(), strict=True))


def stack_sparse(vectors: Iterable[np.ndarray], vocab_size: int) -> "csr_array":
    """Stacks vectors, read one by one, to float32[texts, vocab_size]."""
    from scipy import sparse  # imported here, since it adds a warnings filter

    rows: list[np.ndarray] = []
    data: list[np.ndarray] = []
    for vector in vectors:
        rows.append(np.flatnonzero(vector))
        data.append(vector[rows[-1]])
    starts = np.cumsum([0, *map(len, rows)])
    indices = np.concatenate(rows) if rows else np.empty(0, np.int64)
    values = np.concatenate(data) if data else np.empty(0, np.float32)
    return sparse.csr_array((values, indices, starts), shape=(len(rows), vocab_size))
