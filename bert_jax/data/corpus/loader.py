"""Training batches of a corpus: the rows of a batch are a pure function of (seed, batch number).

There is no iterator state to save or to restore, and a process can read any part of any batch.

Each epoch has all rows once, in its own order: the blocks of the shards are shuffled, and within
each window of blocks the rows. So a batch has rows from about a hundred blocks, and each block is
read about once an epoch.

A model that carries a state reads streams instead, in the order of the text.
"""

import functools
import hashlib

import numpy as np

from bert_jax.data.corpus.batch import Batch
from bert_jax.data.corpus.shards import ROWS_PER_BLOCK, ShardRows
from bert_jax.files.errors import UserError

# The rows of a window, about 128 x 256, are shuffled together. (ShardRows caches two windows.)
WINDOW_BLOCKS = 128

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def permute(numbers: np.ndarray, size: int, key: str) -> np.ndarray:
    """Returns int64[n], the images of int[n] under the permutation of 0 .. size - 1 of `key`.

    A Feistel network permutes the numbers below the next power of four; an image that is not below
    `size` is permuted again until it is. The memory does not depend on `size`.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low_half = (np.uint64(1) << half) - np.uint64(1)
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    round_keys = np.frombuffer(digest, "<u8")
    result = np.array(numbers, np.uint64)
    todo = np.arange(result.size)
    while todo.size:
        left, right = result[todo] >> half, result[todo] & low_half
        for round_key in round_keys:
            mixed = (right + round_key) * _MULTIPLIER
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER
            left, right = right, left ^ (mixed >> (np.uint64(64) - half))
        result[todo] = (left << half) | right
        todo = todo[result[todo] >= size]
    return result.astype(np.int64)


class Loader:
    """Endless batches of shuffled rows.

    Args:
      rows: of the corpus.
      batch_size: rows of the global batch, over all processes.
      seed: of the order.

    Raises:
      UserError: there are no rows, or `batch_size` is not positive.
    """

    def __init__(self, rows: ShardRows, batch_size: int, seed: int):
        if not len(rows):
            raise UserError("There are no rows to make batches of.")
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size} must be at least 1.")
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self._block_order = functools.lru_cache(2)(self._make_block_order)

    def batch(self, index: int, start: int = 0, stop: int | None = None) -> Batch:
        """Returns rows `start` to `stop - 1` of global batch number `index`, in the batch form."""
        return self.rows.read(self.row_numbers(index, start, stop))

    def row_numbers(self, index: int, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Returns int64[stop - start], the numbers of the rows of (that part of) a batch."""
        positions = index * self.batch_size + _part(self.batch_size, start, stop)
        epochs = positions // len(self.rows)
        numbers = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            numbers[here] = self._shuffle(positions[here] - epoch * len(self.rows), epoch)
        return numbers

    def _shuffle(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the row numbers at positions in an epoch, by a permutation of all rows."""
        num_rows, window_size = len(self.rows), WINDOW_BLOCKS * ROWS_PER_BLOCK
        windows = positions // window_size
        places = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            here, first = windows == window, window * window_size
            size = min(window_size, num_rows - first)
            key = f"rows {self.seed} {epoch} {window}"
            places[here] = first + permute(positions[here] - first, size, key)
        # `places` number the rows in the order of the shuffled blocks. The last block of the data
        # may have fewer rows than the others, which shifts the places after it.
        order, slot_of_last = self._block_order(epoch)
        missing = -num_rows % ROWS_PER_BLOCK
        places += missing * (places >= (slot_of_last + 1) * ROWS_PER_BLOCK - missing)
        return order[places // ROWS_PER_BLOCK] * ROWS_PER_BLOCK + places % ROWS_PER_BLOCK

    def _make_block_order(self, epoch: int) -> tuple[np.ndarray, int]:
        num_blocks = -(-len(self.rows) // ROWS_PER_BLOCK)
        order = permute(np.arange(num_blocks), num_blocks, f"blocks {self.seed} {epoch}")
        return order, int(np.flatnonzero(order == num_blocks - 1)[0])


class StreamLoader:
    """Endless batches of streams: row b of a batch continues row b of the batch before.

    The rows of the corpus, in their order, are a circle. Stream b of B begins at row floor(b * R /
    B) of R and follows the circle, so that after R / B batches each stream is where the next one
    began, and the corpus has been read once. Only from the last row to the first do streams jump.

    Args:
      rows: of the corpus.
      batch_size: streams, over all processes.

    Raises:
      UserError: there are fewer rows than streams, or `batch_size` is not positive.
    """

    def __init__(self, rows: ShardRows, batch_size: int):
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size} must be at least 1.")
        if batch_size > len(rows):
            raise UserError(
                f"The corpus has {len(rows):,} rows, too few for {batch_size:,} streams: lower"
                " config.global_batch_size, or give more text."
            )
        self.rows = rows
        self.batch_size = batch_size
        # Each stream reads a block of its own, for as many batches as it has rows.
        rows.cache_blocks(2 * batch_size)

    def batch(self, index: int, start: int = 0, stop: int | None = None) -> Batch:
        """Returns rows `start` to `stop - 1` of global batch number `index`, in the batch form."""
        return self.rows.read(self.row_numbers(index, start, stop))

    def row_numbers(self, index: int, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Returns int64[stop - start], the numbers of the rows of (that part of) a batch."""
        streams = _part(self.batch_size, start, stop)
        return (streams * len(self.rows) // self.batch_size + index) % len(self.rows)


def _part(batch_size: int, start: int, stop: int | None) -> np.ndarray:
    stop = batch_size if stop is None else stop
    if not 0 <= start <= stop <= batch_size:
        raise ValueError(f"Rows {start} to {stop} are not part of a batch of {batch_size}.")
    return np.arange(start, stop)
