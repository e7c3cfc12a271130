"""Spectral embeddings: a truncated singular value decomposition of a co-occurrence matrix.

Tokens that stand between the same tokens are alike: "purple" and "green", but also all plurals.
Matrix factorization finds that in seconds (Levy & Goldberg 2014, "Neural Word Embedding as Implicit
Matrix Factorization"), where training takes minutes.
"""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.batch import Rows
from bert_jax.files.errors import UserError

# scipy is imported in functions, since its import adds a filter of warnings.

# How much text is read: the first training batches, up to so many tokens.
_MAX_TOKENS = 1 << 24
# Exponent of the singular values; better than 1 (Levy et al. 2015, TACL 3, section 7.1).
_POWER = 0.5
# Singular values and rows smaller than this, relative to the largest, are rounding errors.
_NOISE = 1e-5


def spectral_embeddings(rows: Rows, vocab_size: int, size: int) -> tuple[np.ndarray, int]:
    """Returns embeddings, float32[vocab, size], and the number of adjacent pairs of tokens.

    The matrix has max(0, ln(p(i, j) / (p(i) p(j)))) for each token i and the token j after it
    (positive pointwise mutual information), and beside it the same for the token before it. The
    embeddings are U S^0.5, where U are the left singular vectors of the `size` largest singular
    values S. Tokens without a neighbor, or with neighbors that occur nowhere else, have zeros.

    Args:
      rows: training rows. Their first batches are read, up to 2^24 tokens; tokens of different
        examples are not adjacent.
      vocab_size: number of rows of the result.
      size: the embedding size.

    Raises:
      UserError: there are not more than `size` different tokens, or the rank is below it.
    """
    from scipy import sparse
    from scipy.sparse.linalg import ArpackError, svds

    codes, counts = np.unique(np.concatenate([*_pairs(rows, vocab_size)]), return_counts=True)
    first, second = np.divmod(codes, vocab_size)
    as_first = np.bincount(first, counts, vocab_size)
    as_second = np.bincount(second, counts, vocab_size)
    information = np.log(counts * counts.sum() / (as_first[first] * as_second[second]))
    matrix = sparse.csr_array(
        (np.maximum(information, 0).astype(np.float32), (first, second)), (vocab_size, vocab_size)
    )
    known = np.count_nonzero(as_first + as_second)
    error = UserError(
        f"config.init_embeddings='spectral': the {known} different tokens of the text do not"
        f" determine embeddings of size {size}: give more text, or set"
        " config.init_embeddings='random'."
    )
    if known <= size:
        raise error
    try:
        vectors, values, _ = svds(
            sparse.hstack([matrix, matrix.T], format="csr"),
            k=size,
            v0=np.random.default_rng(0).standard_normal(vocab_size, np.float32),
        )
    except ArpackError:
        raise error from None  # the matrix is 0
    if values.min() <= _NOISE * values.max():
        raise error
    assert vectors is not None
    found = vectors * values**_POWER
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(norms > _NOISE * norms.max(), found, 0), int(counts.sum())


def _pairs(rows: Rows, vocab_size: int) -> Iterator[np.ndarray]:
    """Yields i * vocab_size + j for each token i that j follows, int64[pairs] of each batch."""
    number = num_rows = num_tokens = 0
    while num_rows < rows.rows_per_epoch and num_tokens < _MAX_TOKENS:
        batch = rows.batch(number, 0, rows.batch_rows(number))
        ids, examples = batch["input_ids"].astype(np.int64), batch["example_ids"]
        number, num_rows = number + 1, num_rows + len(ids)
        num_tokens += np.count_nonzero(examples)
        is_pair = (examples[:, 1:] == examples[:, :-1]) & (examples[:, 1:] > 0)
        yield (ids[:, :-1] * vocab_size + ids[:, 1:])[is_pair]
