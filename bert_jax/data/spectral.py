"""Spectral embeddings: what the neighbours of a token say about it, before any training.

Tokens that stand between the same neighbours are alike: "purple" and "green", but also all plurals.
Singular vectors of the table of neighbours are embeddings (Levy & Goldberg 2014, "Neural Word
Embedding as Implicit Matrix Factorization"), and take seconds where training takes minutes.
"""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.batch import Rows
from bert_jax.files.errors import UserError

# scipy is imported in functions, since its import adds a filter of warnings.

# The text that is read: the first training batches, up to so many tokens.
_MAX_TOKENS = 1 << 24
# Exponent of the singular values; better than 1 (Levy et al. 2015, TACL 3, section 7.1).
_POWER = 0.5


def spectral_embeddings(rows: Rows, vocab_size: int, size: int) -> tuple[np.ndarray, int]:
    """Returns embeddings, float32[vocab, size], and the number of pairs of neighbours.

    The table has max(0, ln p(i, j) / (p(i) p(j))) for each token i and the token j after it, and
    beside it the same for the token before. The embedding of a token is its row of the largest left
    singular vectors, times the square roots of the singular values; 0 if it has no neighbours.

    Args:
      rows: training rows. Their first batches are read, up to 2^24 tokens; tokens of different
        examples are no neighbours.
      vocab_size: number of rows of the result.
      size: of an embedding.

    Raises:
      UserError: there are not more than `size` different tokens.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds

    codes, counts = np.unique(np.concatenate([*_pairs(rows, vocab_size)]), return_counts=True)
    first, second = np.divmod(codes, vocab_size)
    as_first = np.bincount(first, counts, vocab_size)
    as_second = np.bincount(second, counts, vocab_size)
    if (known := np.count_nonzero(as_first + as_second)) <= size:
        raise UserError(
            f"config.init_embeddings='spectral': the text has {known} different tokens, and needs"
            f" more than the size of an embedding, {size}: give more text, or set"
            " config.init_embeddings='random'."
        )
    information = np.log(counts * counts.sum() / (as_first[first] * as_second[second]))
    table = sparse.csr_array(
        (np.maximum(information, 0).astype(np.float32), (first, second)), (vocab_size, vocab_size)
    )
    vectors, values, _ = svds(
        sparse.hstack([table, table.T], format="csr"),
        k=size,
        v0=np.random.default_rng(0).standard_normal(vocab_size, np.float32),
        return_singular_vectors="u",
    )
    has_neighbours = as_first + as_second > 0
    return np.where(has_neighbours[:, None], vectors * values**_POWER, 0), int(counts.sum())


def _pairs(rows: Rows, vocab_size: int) -> Iterator[np.ndarray]:
    """Yields i * vocab_size + j for each token i that j follows, int64[pairs] for a batch."""
    number = num_rows = num_tokens = 0
    while num_rows < rows.rows_per_epoch and num_tokens < _MAX_TOKENS:
        batch = rows.batch(number, 0, rows.batch_rows(number))
        ids, examples = batch["input_ids"].astype(np.int64), batch["example_ids"]
        number, num_rows = number + 1, num_rows + len(ids)
        num_tokens += np.count_nonzero(examples)
        is_pair = (examples[:, 1:] == examples[:, :-1]) & (examples[:, 1:] > 0)
        yield (ids[:, :-1] * vocab_size + ids[:, 1:])[is_pair]
