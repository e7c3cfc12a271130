"""Which rows each training batch has: a pure function of (seed, number), without state.

By length: a batch is padded to the first of a few lengths (buckets) that its longest row fits in,
so that short batches have little padding and only a few shapes are compiled. `choose_lengths` finds
the lengths that pad the rows of a file least. Each epoch shuffles all rows, sorts them by bucket,
cuts them into batches and shuffles these.

Packed: several rows share one of a batch, where they do not attend to each other. They are packed
once, by best-fit decreasing (corpus/packing.py), so that epochs have the same number of updates;
each epoch shuffles the packed rows.

Each row is used exactly once an epoch.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.corpus.loader import permute
from bert_jax.data.corpus.packing import pack
from bert_jax.files.errors import UserError

# Lengths for rows that no lengths were chosen for.
GENERAL_LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384)
# Lengths that are chosen are multiples of this.
_MULTIPLE = 8


def bucket_lengths(lengths: Sequence[int], longest: int) -> tuple[int, ...]:
    """Returns those of `lengths` that are less than `longest`, and `longest`."""
    return (*(length for length in lengths if length < longest), longest)


def choose_lengths(lengths: np.ndarray, most: int) -> tuple[int, ...]:
    """Returns the lengths to pad rows to with the fewest positions in all, ascending.

    They are multiples of 8; each row is padded to the first that it fits in. The optimum is exact,
    by dynamic programming over the distinct lengths. Of several optima it takes the one with the
    shortest lengths, compared from the last but one down to the first.

    Args:
      lengths: int[rows], tokens of each row.
      most: how many lengths at most, at least 1.

    Raises:
      UserError: there are no rows.
    """
    if not len(lengths):
        raise UserError("There are no rows to choose lengths for.")
    ends, counts = np.unique(-(-np.asarray(lengths) // _MULTIPLE), return_counts=True)
    before = np.append(0, np.cumsum(counts))  # rows that are shorter than each end
    # The cost of all rows up to each end, and for each further length the one before it.
    costs, choices = (before[1:] * ends).astype(float), []
    for _ in range(min(most, len(ends)) - 1):
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
    """Endless batches of shuffled rows.

    Args:
      lengths: int[rows], tokens of each row.
      batch_size: rows of the global batch, over all processes.
      seed: of the order.
      bucket_lengths: lengths that batches are padded to, ascending.
      even_tokens: if positive, the number of rows of a batch is a multiple of it and depends on
        the length, so that all batches have about the positions of `batch_size` rows of mean
        length; 0: each batch has `batch_size` rows.

    Raises:
      UserError: there are no rows, one is longer than the last bucket, or `batch_size` is not
        positive.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        bucket_lengths: Sequence[int],
        even_tokens: int = 0,
    ):
        self._buckets = _buckets(lengths, batch_size, bucket_lengths)
        self._bucket_lengths = np.asarray(bucket_lengths)
        self.batch_size = batch_size
        self.seed = seed
        sizes = np.full(len(bucket_lengths), batch_size)
        if even_tokens:
            positions = batch_size * self._bucket_lengths[self._buckets].mean()
            parts = np.round(positions / self._bucket_lengths / even_tokens)
            sizes = np.maximum(parts, 1).astype(int) * even_tokens
        self._batches = _cut_points(np.sort(self._buckets)[::-1], sizes)
        self._epoch = functools.lru_cache(2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> int:
        return len(self._batches)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those that batches have, ascending."""
        starts = [start for start, _ in self._batches]
        found = np.unique(np.sort(self._buckets)[::-1][starts])
        return tuple(self._bucket_lengths[found].tolist())

    def batch(self, number: int) -> tuple[np.ndarray, int]:
        """Returns int64[rows], the rows of a batch, and the length to pad them to.

        One batch of an epoch may not be full: the number -1 is a row of padding.
        """
        epoch, place = divmod(number, self.batches_per_epoch)
        order, shuffled = self._epoch(epoch)
        start, size = self._batches[shuffled[place]]
        rows = order[start : start + size]
        length = self._bucket_lengths[self._buckets[rows[0]]]
        return np.pad(rows, (0, size - len(rows)), constant_values=-1), int(length)

    def _make_epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns int64[rows], the longest first, and the order of the batches cut out of them."""
        num_rows, num_batches = len(self._buckets), len(self._batches)
        order = permute(np.arange(num_rows), num_rows, f"rows {self.seed} {epoch}")
        # Sorting is stable: within a bucket the order stays random.
        order = order[np.argsort(-self._buckets[order], kind="stable")]
        return order, permute(np.arange(num_batches), num_batches, f"batches {self.seed} {epoch}")


class PackedLoader:
    """Endless batches of shuffled, packed rows.

    Args:
      lengths: int[examples], tokens of each example.
      batch_size: examples of a global batch, about; what `LabelledRows` counts epochs by.
      seed: of the order.
      length: of the packed rows.
      most: examples of a row, at most.
      multiple: rows of a batch are a multiple of this.

    Raises:
      UserError: there are no examples, one is too long, or `batch_size` is not positive.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        length: int,
        most: int,
        multiple: int = 1,
    ):
        if not len(lengths):
            raise UserError("There are no rows to make batches of.")
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size} must be at least 1.")
        self.batch_size, self.seed = batch_size, seed
        self._length, self._most = length, most
        order = permute(np.arange(len(lengths)), len(lengths), f"pack {seed}")
        packed, sizes = pack(np.asarray(lengths)[order], length, most)
        self._examples, self._ends = order[packed], np.cumsum(sizes)
        self.fill = float(np.sum(lengths) / (len(sizes) * length))
        rows = batch_size * len(sizes) / len(lengths)
        self.rows = max(1, round(rows / multiple)) * multiple
        self._epoch = functools.lru_cache(2)(self._make_epoch)

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self._ends) // self.rows)

    def batch(self, number: int) -> tuple[np.ndarray, int]:
        """Returns int64[rows, most], the examples of each row, and the length of rows.

        The number -1 is no example; one batch of an epoch may have rows without examples.
        """
        epoch, place = divmod(number, self.batches_per_epoch)
        chosen = self._epoch(epoch)[place * self.rows : (place + 1) * self.rows]
        found = np.full((self.rows, self._most), -1, np.int64)
        for row, packed in enumerate(chosen):
            begin = self._ends[packed - 1] if packed else 0
            examples = self._examples[begin : self._ends[packed]]
            found[row, : len(examples)] = examples
        return found, self._length

    def _make_epoch(self, epoch: int) -> np.ndarray:
        rows = len(self._ends)
        return permute(np.arange(rows), rows, f"packed rows {self.seed} {epoch}")


def _cut_points(buckets: np.ndarray, sizes: np.ndarray) -> list[tuple[int, int]]:
    """Returns (first row, rows) of each batch of rows in descending buckets."""
    points, start = [], 0
    while start < len(buckets):
        size = int(sizes[buckets[start]])
        points.append((start, size))
        start += size
    return points


def evaluation_batches(
    lengths: np.ndarray, batch_size: int, bucket_lengths: Sequence[int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields (int64[batch_size] rows, length) with all rows once, the longest first.

    The last batch is filled up with the number -1, a row of padding.

    Raises:
      UserError: as `BucketedLoader`.
    """
    buckets = _buckets(lengths, batch_size, bucket_lengths)
    order = np.argsort(-buckets, kind="stable")
    order = np.pad(order, (0, -len(order) % batch_size), constant_values=-1)
    for rows in order.reshape(-1, batch_size):
        yield rows, bucket_lengths[int(buckets[rows[0]])]


def _buckets(lengths: np.ndarray, batch_size: int, bucket_lengths: Sequence[int]) -> np.ndarray:
    """Returns int64[rows], the bucket of each row."""
    if not len(lengths):
        raise UserError("There are no rows to make batches of.")
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size} must be at least 1.")
    if list(bucket_lengths) != sorted(set(bucket_lengths)):
        raise UserError(f"bucket_lengths={tuple(bucket_lengths)} must be ascending.")
    if (longest := np.max(lengths)) > max(bucket_lengths, default=0):
        raise UserError(
            f"A row has {longest} tokens, more than the largest of"
            f" bucket_lengths={tuple(bucket_lengths)}."
        )
    return np.searchsorted(np.asarray(bucket_lengths), lengths)
