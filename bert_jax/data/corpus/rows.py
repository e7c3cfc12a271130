"""One split of a prepared corpus as the rows of a run (`corpus.batch.Rows`)."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.data.corpus.batch import Batch, EvaluationBatch
from bert_jax.data.corpus.loader import Loader, StreamLoader
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.shards import ShardRows


@dataclasses.dataclass(frozen=True)
class CorpusRows:
    """The rows of one split of a prepared corpus, at one sequence length.

    Files are opened when rows are read for the first time.

    Attributes:
      manifest: of the corpus.
      name: the split, `train` or `validation`.
      sequence_length: of the rows.
      batch_size: rows of the global training batch; not used by `evaluation_batches`.
      seed: of the order of the training rows; streams have the order of the text.
    """

    manifest: Manifest
    name: str
    sequence_length: int
    batch_size: int = 1
    seed: int = 0

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the whole corpus, with all splits and sequence lengths."""
        return self.manifest.fingerprint

    @property
    def rows_per_epoch(self) -> int:
        """All rows of the split."""
        return self.manifest.num_rows(self.name, self.sequence_length)

    @property
    def statistics(self) -> dict[str, Any]:
        """Statistics of the rows (`statistics.RowCounts.describe`)."""
        return self.manifest.statistics(self.name, self.sequence_length)

    @property
    def text_counts(self) -> dict[str, int]:
        """What rows of running text predict, and how much text that is.

        See `running_text.text_counts`; rows of another form have no such counts.
        """
        return self.manifest.content["splits"][self.name]["text"]

    def batch_rows(self, number: int) -> int:
        """Returns `batch_size`."""
        del number
        return self.batch_size

    def batch(self, number: int, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of global training batch `number` (the form's `make_batch`).

        Raises:
          UserError: there are no rows, a file is missing, or a shard is corrupt.
        """
        return self._loader.batch(number, start, stop)

    def describe(self) -> list[str]:
        """Returns the line of the banner about the corpus; it is the same for all its splits."""
        content = self.manifest.content
        form = content["formats"][str(self.sequence_length)]
        return [
            f"data       {content['settings']['source']} in {self.manifest.folder},"
            f" fingerprint {self.fingerprint[:12]}, {form['vocab_size']:,} tokens"
            " in the vocabulary"
        ]

    def evaluation_batches(self, batch_size: int) -> Iterator[EvaluationBatch]:
        """Yields all rows once, in their order; the last batch is filled up with padding.

        Of streams, row b of a batch continues row b of the batch before: N batches divide the rows
        into parts of N, and the last parts are filled up.

        Raises:
          UserError: a file is missing or has another size.
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

            def read(start: int, stop: int, numbers: np.ndarray = numbers) -> Batch:
                return rows.read(numbers[start:stop])

            yield EvaluationBatch(numbers, self.sequence_length, read)

    @functools.cached_property
    def _rows(self) -> ShardRows:
        return self.manifest.rows(self.name, self.sequence_length)

    @functools.cached_property
    def _loader(self) -> Loader | StreamLoader:
        if self._rows.form.is_stream:
            return StreamLoader(self._rows, self.batch_size)
        return Loader(self._rows, self.batch_size, self.seed)
