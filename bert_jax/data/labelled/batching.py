"""Which rows each batch has: a pure function of (seed, number), without state or devices.

Length bucketing: a batch is padded to the first of a few bucket lengths that its longest row fits
in, so that short batches have little padding and only a few shapes are compiled. Each epoch
shuffles all rows, sorts them by bucket, cuts them into batches and shuffles these.

Packed: several rows share a row of the batch, without attending to each other. They are packed once
(data/packing.py), so that all epochs have the same number of steps; each epoch shuffles the packed
rows.

Each row is used exactly once an epoch; with a `RowSampler`, only some rows of each example are.
"""

import functools
from collections.abc import Sequence

import numpy as np

from bert_jax.data.batch import take_rows
from bert_jax.data.packing import pack_rows
from bert_jax.data.permutation import permute
from bert_jax.files.errors import UserError

# Bucket lengths if none were chosen for the rows.
GENERAL_LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384)
# Chosen lengths are multiples of this.
_MULTIPLE = 8


def bucket_lengths(lengths: Sequence[int], max_length: int) -> tuple[int, ...]:
    """Returns those of `lengths` that are less than `max_length`, and `max_length`."""
    return (*(length for length in lengths if length < max_length), max_length)


def choose_lengths(lengths: np.ndarray, max_buckets: int) -> tuple[int, ...]:
    """Returns the bucket lengths with the least padding, ascending.

    They are multiples of 8; each row is padded to the first that it fits in. The optimum is exact,
    by dynamic programming over the distinct lengths. Among several optima, the one with the
    shortest lengths is taken, compared from the last but one down to the first.

    Args:
      lengths: int[rows], tokens of each row.
      max_buckets: maximum number of lengths, at least 1.

    Raises:
      UserError: there are no rows.
    """
    if not len(lengths):
        raise UserError("There are no rows to choose lengths for.")
    ends, counts = np.unique(-(-np.asarray(lengths) // _MULTIPLE), return_counts=True)
    before = np.append(0, np.cumsum(counts))  # rows that are shorter than each end
    # The cost of all rows up to each end, and for each further length the one before it.
    costs, choices = (before[1:] * ends).astype(float), []
    for _ in range(min(max_buckets, len(ends)) - 1):
        # [end, shorter end] -> the cost of padding what is longer than the shorter end to the end.
        steps = (before[1:, None] - before[1:]) * ends[:, None]
        totals = np.where(ends[:, None] > ends, costs + steps, np.inf)
        choices.append(totals.argmin(axis=1))
        costs = totals.min(axis=1)
    chosen = [len(ends) - 1]
    for choice in reversed(choices):
        chosen.append(int(choice[chosen[-1]]))
    return tuple((ends[chosen[::-1]] * _MULTIPLE).tolist())


class BucketedLoader:
    """Endless batches of shuffled rows, padded to bucket lengths.

    Args:
      lengths: int[rows], tokens of each row.
      batch_size: rows of the global batch, over all processes.
      seed: determines the order.
      bucket_lengths: lengths that batches are padded to, ascending.
      by_tokens: whether the number of rows of a batch depends on the length, so that all batches
        have about as many positions as `batch_size` rows of mean length; else it is `batch_size`.

    Raises:
      UserError: there are no rows, or one is longer than the last bucket.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        bucket_lengths: Sequence[int],
        by_tokens: bool = False,
    ):
        self._buckets = buckets_of(lengths, bucket_lengths)
        self._bucket_lengths = np.asarray(bucket_lengths)
        self.batch_size = batch_size
        self.seed = seed
        sizes = np.full(len(bucket_lengths), batch_size)
        if by_tokens:
            positions = batch_size * self._bucket_lengths[self._buckets].mean()
            sizes = np.maximum(np.round(positions / self._bucket_lengths), 1).astype(int)
        # (first row, rows, bucket) of each batch of the rows in descending buckets.
        descending = np.sort(self._buckets)[::-1]
        self._batches: list[tuple[int, int, int]] = []
        start = 0
        while start < len(descending):
            bucket = int(descending[start])
            self._batches.append((start, int(sizes[bucket]), bucket))
            start += int(sizes[bucket])
        self._epoch = functools.lru_cache(2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> int:
        return len(self._batches)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that batches have, ascending."""
        used = sorted({bucket for _, _, bucket in self._batches})
        return tuple(self._bucket_lengths[used].tolist())

    def batch(self, number: int) -> tuple[np.ndarray, int]:
        """Returns int64[rows], the rows of a batch, and the length to pad them to.

        One batch of an epoch may not be full: the number -1 is a padding row.
        """
        epoch, place = divmod(number, self.batches_per_epoch)
        order, shuffled = self._epoch(epoch)
        start, size, bucket = self._batches[shuffled[place]]
        return take_rows(order, start, start + size), int(self._bucket_lengths[bucket])

    def _make_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns int64[rows], the longest first, and the order of the batches cut out of them."""
        order = _shuffled(len(self._buckets), f"rows {self.seed} {epoch}")
        # Sorting is stable: within a bucket the order stays random.
        order = order[np.argsort(-self._buckets[order], kind="stable")]
        return order, _shuffled(len(self._batches), f"batches {self.seed} {epoch}")


class RowSampler:
    """Picks some rows of each example in each epoch, such as some windows of each long text.

    A loader then makes batches of places instead of rows: an example with n rows has min(n,
    `max_rows`) places, which hold different rows of it in each epoch. All epochs thus have batches
    of the same shapes.

    Args:
      example: int[rows], the example of each row, ascending.
      lengths: int[rows], tokens of each row.
      max_rows: maximum rows of an example in an epoch.
      seed: determines the rows.

    Attributes:
      lengths: int[places], tokens of the longest row that may be at each place.
    """

    def __init__(self, example: np.ndarray, lengths: np.ndarray, max_rows: int, seed: int):
        starts = np.flatnonzero(np.diff(example, prepend=-1))
        counts = np.diff(np.append(starts, len(example)))
        longest = np.maximum.reduceat(lengths, starts)
        self.lengths = np.repeat(longest, np.minimum(counts, max_rows))
        self._example, self._seed = example, seed
        self._is_taken = np.arange(len(example)) - np.repeat(starts, counts) < max_rows
        self._epoch = functools.lru_cache(2)(self._make_epoch)

    def rows(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the rows at int64[...] places in an epoch; -1 (no place) stays -1."""
        return np.where(places >= 0, self._epoch(epoch)[places], -1)

    def _make_epoch(self, epoch: int) -> np.ndarray:
        """Returns int64[places], each example's first rows in a random order of all rows."""
        order = _shuffled(len(self._example), f"sample {self._seed} {epoch}")
        return order[np.argsort(self._example[order], kind="stable")][self._is_taken]


class PackedLoader:
    """Endless batches of shuffled, packed rows.

    Args:
      lengths: int[examples], tokens of each example.
      batch_size: approximate number of examples of a global batch; epochs are counted by it.
      seed: determines the order.
      row_length: tokens of a packed row.
      max_examples: maximum number of examples of a row.

    Raises:
      UserError: there are no examples, or one is too long.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, seed: int, row_length: int, max_examples: int
    ):
        buckets_of(lengths, [row_length])
        self.batch_size, self.seed = batch_size, seed
        self._row_length = row_length
        order = _shuffled(len(lengths), f"pack {seed}")
        packed = pack_rows(np.asarray(lengths)[order], row_length, max_examples)
        self._examples = np.where(packed >= 0, order[packed], -1)  # int64[packed rows, N]
        self.fill = float(np.sum(lengths) / (len(packed) * row_length))
        self.rows = max(1, round(batch_size * len(packed) / len(lengths)))
        self._epoch = functools.lru_cache(2)(
            lambda epoch: _shuffled(len(packed), f"packed rows {seed} {epoch}")
        )

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self._examples) // self.rows)

    def batch(self, number: int) -> tuple[np.ndarray, int]:
        """Returns int64[rows, max_examples], the examples of each row, and the length of rows.

        The number -1 stands for no example; one batch of an epoch may have rows without examples.
        """
        epoch, place = divmod(number, self.batches_per_epoch)
        chosen = self._epoch(epoch)[place * self.rows : (place + 1) * self.rows]
        return take_rows(self._examples[chosen], 0, self.rows), self._row_length


def buckets_of(lengths: np.ndarray, bucket_lengths: Sequence[int]) -> np.ndarray:
    """Returns int64[rows], the bucket of each row; UserError: none, or one is too long."""
    if not len(lengths):
        raise UserError("There are no rows to make batches of.")
    if (longest := np.max(lengths)) > max(bucket_lengths, default=0):
        raise UserError(
            f"A row has {longest} tokens, more than the largest of"
            f" bucket_lengths={tuple(bucket_lengths)}."
        )
    return np.searchsorted(np.asarray(bucket_lengths), lengths)


def _shuffled(size: int, key: str) -> np.ndarray:
    return permute(np.arange(size), size, key)
