"""A file of labelled examples as the rows of a run (`data.batch.Rows`)."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.batch import Batch, EvaluationBatch, take_rows
from bert_jax.data.labelled.batching import (
    BucketedLoader,
    PackedLoader,
    RowSampler,
    buckets_of,
)
from bert_jax.data.labelled.sequences import EncodedRows
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """A file of labelled examples, encoded as rows in memory.

    Attributes:
      name: `train`, `eval`, or a name in config.data.more_eval.
      source: the file, or tfds:NAME[SPLIT].
      fingerprint: `source_sha256` of the source.
      examples: examples in the order of the file.
      rows: the encoded examples; an example may have several.
      counts: what was repaired, truncated or left out, by name; counts of 0 are left out.
      pad_lengths: bucket lengths of batches, ascending.
      loader: says which rows each training batch has; None: the rows are only evaluated.
      sampler: picks the rows of each example for an epoch; None: all.
    """

    name: str
    source: str
    fingerprint: str
    examples: Sequence[Any]
    rows: EncodedRows
    counts: dict[str, int]
    pad_lengths: tuple[int, ...]
    loader: BucketedLoader | PackedLoader | None = None
    sampler: RowSampler | None = None

    def padded_to(self, pad_lengths: tuple[int, ...]) -> "LabelledRows":
        """Returns the same rows with other bucket lengths."""
        return dataclasses.replace(self, pad_lengths=pad_lengths)

    def for_training(
        self,
        batch_size: int,
        seed: int,
        by_tokens: bool = False,
        max_examples: int = 1,
        max_windows: int = 0,
    ) -> "LabelledRows":
        """Returns the same rows with a loader.

        Args:
          batch_size, seed, by_tokens: see `BucketedLoader`.
          max_examples: above 1, rows are packed into rows of the longest of `pad_lengths`, see
            `PackedLoader`.
          max_windows: maximum number of rows of each example in an epoch; 0: all.

        Raises:
          UserError: there are no rows, a row is too long, or `batch_size` is not positive.
        """
        lengths, sampler = self.rows.lengths, None
        if max_windows:
            sampler = RowSampler(self.rows.example, lengths, max_windows, seed)
            lengths = sampler.lengths
        if max_examples > 1:
            loader = PackedLoader(lengths, batch_size, seed, self.pad_lengths[-1], max_examples)
        else:
            loader = BucketedLoader(lengths, batch_size, seed, self.pad_lengths, by_tokens)
        return dataclasses.replace(self, loader=loader, sampler=sampler)

    @property
    def rows_per_epoch(self) -> int:
        """Batches of an epoch times `batch_size`; without a loader, the number of rows.

        One batch of an epoch may not be full, and batches may have different numbers of rows.
        """
        if self.loader is None:
            return self.rows.num_rows
        return self.loader.batches_per_epoch * self.loader.batch_size

    @property
    def words_per_epoch(self) -> int:
        """0: words of labelled examples are not counted."""
        return 0

    def batch_rows(self, number: int) -> int:
        """Returns the number of rows of global training batch `number`, with padding."""
        return len(self._training_batch(number)[0])

    def batch(self, number: int, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of global training batch `number`, then padding rows.

        Raises:
          UserError: there is no loader.
        """
        row_numbers, length = self._training_batch(number)
        return self.rows.take(take_rows(row_numbers, start, stop), length)

    def origin(self) -> dict[str, Any]:
        """Returns what results.json says about the file."""
        return {"source": self.source, "sha256": self.fingerprint, "examples": len(self.examples)}

    def evaluation_batches(self, batch_size: int) -> Iterator[EvaluationBatch]:
        """Yields all rows once, the longest first; padding fills up the last batch.

        Raises:
          UserError: there are no rows, or a row is too long.
        """
        buckets = buckets_of(self.rows.lengths, self.pad_lengths)
        order = np.argsort(-buckets, kind="stable")
        order = np.pad(order, (0, -len(order) % batch_size), constant_values=-1)
        for numbers in order.reshape(-1, batch_size):
            length = self.pad_lengths[int(buckets[numbers[0]])]
            take = functools.partial(self.rows.take, length=length)
            yield EvaluationBatch(numbers, length, take)

    def _training_batch(self, number: int) -> tuple[np.ndarray, int]:
        if self.loader is None:
            raise UserError(
                f"{self.name!r} ({self.source}) has no training batches: call for_training first."
            )
        rows, length = self.loader.batch(number)
        if self.sampler:
            rows = self.sampler.rows(rows, number // self.loader.batches_per_epoch)
        return rows, length


def source_sha256(source: str, examples: Sequence[Any]) -> str:
    """Returns the SHA-256 of a file; of the examples, if `source` is not a file."""
    if os.path.isfile(source):
        return file_sha256(source)
    return hashlib.sha256(repr(examples).encode()).hexdigest()
