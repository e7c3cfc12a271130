"""Batches of rows of like lengths: which rows a batch has is a pure function of (seed, number).

A batch is padded to the first of a few lengths (buckets) that its longest row fits in, so that
short rows do not pay for long ones and only a handful of shapes is compiled. Each epoch shuffles
all rows, sorts every window of some batches by bucket, cuts it into batches and shuffles these:
each row comes exactly once an epoch, and there is no state to save or to restore.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.loader import permute

# Batches that are sorted together. More would save a little padding, and mix the rows less.
WINDOW_BATCHES = 50


def bucket_lengths(lengths: Sequence[int], longest: int) -> tuple[int, ...]:
    """Those of `lengths` that are shorter than the longest row allowed, and this."""
    return (*(length for length in lengths if length < longest), longest)


class BucketedLoader:
    """Endless batches of shuffled rows.

    Args:
      lengths: int[rows], tokens of each row.
      batch_size: rows of the global batch, over all processes.
      seed: of the order.
      bucket_lengths: that batches are padded to, in ascending order.

    Raises:
      ValueError: there are no rows, one is longer than the last bucket, or `batch_size` is not
        positive.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, seed: int, bucket_lengths: Sequence[int]
    ):
        self._buckets = _buckets(lengths, batch_size, bucket_lengths)
        self._bucket_lengths = tuple(bucket_lengths)
        self.batch_size = batch_size
        self.seed = seed
        self._epoch = functools.lru_cache(2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self._buckets) // self.batch_size)

    def batch(self, number: int) -> tuple[np.ndarray, int]:
        """Returns the int64[batch_size] rows of a batch and the length to pad them to.

        One batch of an epoch may not be full: the number -1 is no row.
        """
        epoch, place = divmod(number, self.batches_per_epoch)
        rows = self._epoch(epoch)[place]
        return rows.copy(), self._bucket_lengths[self._buckets[rows[rows >= 0]].max()]

    def _make_epoch(self, epoch: int) -> np.ndarray:
        """int64[batches, batch_size]."""
        num_rows = len(self._buckets)
        order = permute(np.arange(num_rows), num_rows, f"rows {self.seed} {epoch}")
        window = np.arange(num_rows) // (WINDOW_BATCHES * self.batch_size)
        # Sorting is stable: within a bucket the order stays random.
        order = order[np.lexsort((self._buckets[order], window))]
        batches = _cut(order, self.batch_size)
        key = f"batches {self.seed} {epoch}"
        return batches[permute(np.arange(len(batches)), len(batches), key)]


def evaluation_batches(
    lengths: np.ndarray, batch_size: int, bucket_lengths: Sequence[int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields (int64[batch_size] rows, length) with all rows once, the longest first.

    The last batch is filled up with the number -1, which is no row.

    Raises:
      ValueError: as `BucketedLoader`.
    """
    buckets = _buckets(lengths, batch_size, bucket_lengths)
    for rows in _cut(np.argsort(-buckets, kind="stable"), batch_size):
        yield rows, bucket_lengths[int(buckets[rows[0]])]


def _buckets(lengths: np.ndarray, batch_size: int, bucket_lengths: Sequence[int]) -> np.ndarray:
    """int64[rows], which bucket each row fits in."""
    if not len(lengths):
        raise ValueError("There are no rows to make batches of.")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1.")
    if list(bucket_lengths) != sorted(set(bucket_lengths)):
        raise ValueError(f"bucket_lengths={tuple(bucket_lengths)} must ascend.")
    if (longest := np.max(lengths)) > max(bucket_lengths, default=0):
        raise ValueError(
            f"A row has {longest} tokens, and the longest of bucket_lengths="
            f"{tuple(bucket_lengths)} is shorter."
        )
    return np.searchsorted(np.asarray(bucket_lengths), lengths)


def _cut(rows: np.ndarray, batch_size: int) -> np.ndarray:
    """int64[rows] -> int64[batches, batch_size], filled up with -1."""
    missing = -len(rows) % batch_size
    return np.pad(rows, (0, missing), constant_values=-1).reshape(-1, batch_size)
