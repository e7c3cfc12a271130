"""Training on the user's own batches, given as a function of the step, instead of a corpus."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Batch, EvaluationBatch
from bert_jax.files.errors import UserError
from bert_jax.models.model import complete_batch

# Step, from 0 -> the fields of the global batch of that step.
MakeBatch = Callable[[int], Mapping[str, Any]]
# Value of `data.source` in the configuration of such a run.
SOURCE = "batches"


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """The batches of a function as the rows of a phase (`data.batch.Rows`).

    Attributes:
      make_batch: a pure function, so that a run that was stopped continues with the same batches.
      phase: its batch size and length are those of the batches.
      vocab_size: ids are below it.
    """

    make_batch: MakeBatch
    phase: Phase
    vocab_size: int
    name: str = "train"

    @property
    def fingerprint(self) -> str:
        """A hash of the first batch, in which another function most likely differs."""
        first = self._first
        parts = (f"{name} {first[name].tobytes().hex()}" for name in sorted(first))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def rows_per_epoch(self) -> int:
        """The rows of one batch: a function has no epochs, and the run's length is in steps."""
        return self.phase.batch_size

    @property
    def words_per_epoch(self) -> int:
        """0: a function has no text."""
        return 0

    def check_fields(self, needs_labels: bool) -> None:
        """Raises UserError if next-sentence labels are needed and the batches lack them."""
        if needs_labels and "next_sentence_labels" not in self._first:
            raise UserError(
                "config.model.next_sentence=True: the batches lack next_sentence_labels,"
                " int32[batch, 1]; add them, or set config.model.next_sentence=False."
            )

    def batch_rows(self, number: int) -> int:
        """Returns the batch size of the phase."""
        del number
        return self.phase.batch_size

    def batch(self, number: int, start: int, stop: int) -> Batch:
        """Returns rows [start, stop) of the batch of step `phase.data_step` + `number`.

        Raises:
          UserError: the batch is of another shape or dtype than the phase's.
        """
        fields = self._read(self.phase.data_step + number)
        return {name: _padded(array[start:stop], stop - start) for name, array in fields.items()}

    def evaluation_batches(self, batch_size: int) -> Iterator[EvaluationBatch]:
        """Yields none: a function has no end."""
        del batch_size
        return iter(())

    @functools.cached_property
    def _first(self) -> Batch:
        return self._read(self.phase.data_step)

    def _read(self, step: int) -> Batch:
        given = self.make_batch(step)
        if not isinstance(given, Mapping):
            raise UserError(
                f"batches({step}) is of type {type(given).__name__}: return a dict of arrays, such"
                " as input_ids, int32[batch, seq]."
            )
        rows, length = self.phase.batch_size, self.phase.sequence_length
        arrays = {name: np.asarray(value) for name, value in given.items()}
        ids = arrays.get("input_ids", np.zeros(0, np.int32))
        if ids.shape != (rows, length) or not np.issubdtype(ids.dtype, np.integer):
            raise UserError(
                f"batches({step}) has input_ids of shape {list(ids.shape)}, {ids.dtype}: return"
                f" int32[{rows}, {length}], as config.global_batch_size and config.phases say."
            )
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise UserError(
                f"batches({step}) has input_ids from {ids.min()} to {ids.max()}, not below"
                f" config.model.vocab_size={self.vocab_size}: they are of another vocabulary."
            )
        if wrong := [n for n, array in arrays.items() if array.shape[:1] != (rows,)]:
            raise UserError(f"batches({step}): {', '.join(wrong)} have not {rows} rows.")
        arrays["input_ids"] = ids.astype(np.int32)
        try:
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                fields = {name: np.asarray(x) for name, x in complete_batch(arrays).items()}
        except UserError as error:
            raise UserError(f"batches({step}): {error}") from None
        if (labels := fields.get("next_sentence_labels")) is not None:
            fields.setdefault("next_sentence_weights", np.ones(labels.shape, np.float32))
        return fields


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    """Returns an array with rows of zeros at its end: padding, of weight 0."""
    missing = ((0, rows - len(array)), *[(0, 0)] * (array.ndim - 1))
    return np.pad(array, missing)
