"""One split of a prepared corpus as the rows of a run (`data.batch.Rows`).

The rows of a training batch are a pure function of (seed, batch number): there is no iterator state
to save or to restore, and each process can read any part of any batch.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.batch import Batch, EvaluationBatch, take_rows
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.shards import ROWS_PER_BLOCK, ShardRows
from bert_jax.data.permutation import permute
from bert_jax.files.errors import UserError

# The rows of a window, about 128 x 256, are shuffled together. (ShardRows caches two windows.)
WINDOW_BLOCKS = 128


@dataclasses.dataclass(frozen=True)
class CorpusRows:
    """The rows of one split of a prepared corpus, at one sequence length.

    Files are opened when rows are read for the first time.

    Attributes:
      manifest: describes the corpus.
      name: the split, `train` or `validation`.
      sequence_length: tokens of a row.
      batch_size: rows of the global training batch; not used by `evaluation_batches`.
      seed: determines the order of the training rows; streams keep the order of the text.
      replay: rows of another corpus that end each training batch, as many as its own `batch_size`;
        this `batch_size` includes them. None: no replay.
      skipped: rows that come before the first batch, counted over all epochs: an earlier phase has
        read them.
    """

    manifest: Manifest
    name: str
    sequence_length: int
    batch_size: int = 1
    seed: int = 0
    replay: "CorpusRows | None" = None
    skipped: int = 0

    def after(self, earlier: Sequence[tuple[int, "CorpusRows"]]) -> "CorpusRows":
        """Returns these rows from where earlier phases end.

        Args:
          earlier: steps and rows of the phases, which have the same sequence length.
        """
        skipped = sum(steps * rows._own_size for steps, rows in earlier)
        replay = self.replay
        if replay:
            replay = replay.after([(steps, rows.replay) for steps, rows in earlier if rows.replay])
        return dataclasses.replace(self, skipped=skipped, replay=replay)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the whole corpus, with all splits and sequence lengths."""
        if self.replay is None:
            return self.manifest.fingerprint
        both = self.manifest.fingerprint + self.replay.fingerprint
        return hashlib.sha256(both.encode()).hexdigest()

    @property
    def rows_per_epoch(self) -> int:
        """All rows of the split, and the rows replayed along with them."""
        rows = self.manifest.num_rows(self.name, self.sequence_length)
        return -(-rows * self.batch_size // self._own_size) if self.replay else rows

    @property
    def words_per_epoch(self) -> int:
        """Words of the split's text and, on average, of the rows replayed along with it."""
        words = self.manifest.words_per_epoch(self.name)
        if not (self.replay and words):
            return words
        replayed = self.rows_per_epoch - self.manifest.num_rows(self.name, self.sequence_length)
        return words + round(replayed * self.replay.words_per_epoch / self.replay.rows_per_epoch)

    @property
    def _own_size(self) -> int:
        """Number of rows of a training batch from this corpus; they come first."""
        return self.batch_size - (self.replay.batch_size if self.replay else 0)

    @property
    def statistics(self) -> dict[str, Any]:
        """Statistics of the rows (`row_counts.RowCounts.describe`)."""
        return self.manifest.statistics(self.name, self.sequence_length)

    @property
    def text_counts(self) -> dict[str, int]:
        """The number of tokens that rows of running text predict, and the amount of their text.

        See `documents.text_counts`; other rows have no such counts.
        """
        return self.manifest.content["splits"][self.name]["text"]

    def batch_rows(self, number: int) -> int:
        """Returns `batch_size`."""
        del number
        return self.batch_size

    def batch(self, number: int, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of global training batch `number` (the form's `make_batch`).

        Rows past its last one are padding.

        Raises:
          UserError: streams have too few rows, a file is missing, or a shard is corrupt.
        """
        own = self._own_size
        if self.replay and start >= own:
            return self.replay.batch(number, start - own, stop - own)
        numbers = self._row_numbers(number)
        if not self.replay or stop <= own:
            return self._rows.read(take_rows(numbers, start, stop))
        first, last = self._rows.read(numbers[start:]), self.replay.batch(number, 0, stop - own)
        return {name: np.concatenate([first[name], last[name]]) for name in first}

    def evaluation_batches(self, batch_size: int) -> Iterator[EvaluationBatch]:
        """Yields all rows once, in order; padding fills up the last batch.

        In streams, row b of a batch continues row b of the previous batch: N batches divide the
        rows into parts of N, and padding fills up the last parts.

        Raises:
          UserError: a file is missing or has the wrong size.
        """
        rows = self._rows
        num_batches = -(-len(rows) // batch_size)
        places = np.arange(num_batches * batch_size)
        places[places >= len(rows)] = -1
        order = places.reshape(num_batches, batch_size)
        if rows.form.is_stream:
            order = places.reshape(batch_size, num_batches).T
            rows.cache_blocks(2 * batch_size)
        for numbers in order:
            yield EvaluationBatch(numbers, self.sequence_length, rows.read)

    @functools.cached_property
    def _rows(self) -> ShardRows:
        return self.manifest.rows(self.name, self.sequence_length)

    @functools.cached_property
    def _row_numbers(self) -> Callable[[int], np.ndarray]:
        """The function batch number -> int64[batch_size], the rows of the batch."""
        num_rows, batch_size = len(self._rows), self._own_size
        if not self._rows.form.is_stream:
            return ShuffledOrder(num_rows, batch_size, self.seed, self.skipped).row_numbers
        if batch_size > num_rows:
            raise UserError(
                f"The corpus has {num_rows:,} rows, too few for {batch_size:,} streams: lower"
                " config.global_batch_size, or give more text."
            )
        # Each stream reads a block of its own, for as many batches as it has rows.
        self._rows.cache_blocks(2 * batch_size)
        first = self.skipped // batch_size
        return lambda number: stream_rows(first + number, num_rows, batch_size)


class ShuffledOrder:
    """The rows of each batch: each epoch has all rows once, in its own order.

    The blocks of the shards are shuffled, and then the rows within each window of blocks. A batch
    thus has rows from about a hundred blocks, and each block is read about once an epoch. Batches
    are global, over all processes.
    """

    def __init__(self, num_rows: int, batch_size: int, seed: int, skipped: int = 0):
        self._num_rows, self._batch_size, self._seed = num_rows, batch_size, seed
        self._skipped = skipped
        self._block_order = functools.lru_cache(2)(self._make_block_order)

    def row_numbers(self, number: int) -> np.ndarray:
        """Returns int64[batch_size], the rows of batch `number`."""
        first = self._skipped + number * self._batch_size
        positions = first + np.arange(self._batch_size)
        epochs = positions // self._num_rows
        numbers = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            numbers[here] = self._shuffle(positions[here] - epoch * self._num_rows, epoch)
        return numbers

    def _shuffle(self, positions: np.ndarray, epoch: int) -> np.ndarray:
        """Returns the row numbers at positions in an epoch, by a permutation of all rows."""
        num_rows, window_size = self._num_rows, WINDOW_BLOCKS * ROWS_PER_BLOCK
        windows = positions // window_size
        places = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            here, first = windows == window, window * window_size
            size = min(window_size, num_rows - first)
            key = f"rows {self._seed} {epoch} {window}"
            places[here] = first + permute(positions[here] - first, size, key)
        # `places` number the rows in the order of the shuffled blocks. The last block of the data
        # may have fewer rows than the others, which shifts the places after it.
        order, slot_of_last = self._block_order(epoch)
        missing = -num_rows % ROWS_PER_BLOCK
        places += missing * (places >= (slot_of_last + 1) * ROWS_PER_BLOCK - missing)
        return order[places // ROWS_PER_BLOCK] * ROWS_PER_BLOCK + places % ROWS_PER_BLOCK

    def _make_block_order(self, epoch: int) -> tuple[np.ndarray, int]:
        num_blocks = -(-self._num_rows // ROWS_PER_BLOCK)
        order = permute(np.arange(num_blocks), num_blocks, f"blocks {self._seed} {epoch}")
        return order, int(np.flatnonzero(order == num_blocks - 1)[0])


def stream_rows(number: int, num_rows: int, batch_size: int) -> np.ndarray:
    """Returns int64[batch_size], the rows of batch `number`: each continues the batch before.

    Stream b of B begins at row floor(b * R / B) of R and wraps around at the end, so that after R /
    B batches each stream is where the next one began, and the corpus has been read once. Streams
    jump only from the last row to the first.
    """
    return (np.arange(batch_size) * num_rows // batch_size + number) % num_rows
