"""From rows to batches on the devices; a batch is a function of its update's number."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Batch, Rows
from bert_jax.data.labelled.batching import BucketedLoader
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices import sharding
from bert_jax.models.model import AddFields
from bert_jax.training.run import Run


class Feed:
    """The training batches of one phase.

    Args:
      mesh: all devices.
      phase: of the run.
      rows: to train on.
      add_fields: completes a batch for the encoder, see `Run.add_fields`.
    """

    def __init__(self, mesh: Mesh, phase: Phase, rows: Rows, add_fields: AddFields):
        self._mesh = mesh
        self._phase = phase
        self._rows = rows
        self._add_fields = add_fields

    def host_batch(self, step: int) -> Batch:
        """Returns this process's rows of the batch of update number `step`."""
        number = step - self._phase.first_step
        local = sharding.local_rows(self._mesh, self._rows.batch_rows(number))
        return self._add_fields(self._rows.batch(number, *local))

    def batches(self, step: int) -> Iterator[dict[str, jax.Array]]:
        """Yields the batches from update number `step` to the end of the phase, on the devices."""
        for update in range(step, self._phase.last_step):
            size = self._rows.batch_rows(update - self._phase.first_step)
            start, _ = sharding.local_rows(self._mesh, size)
            yield sharding.shard_batch(self._mesh, self.host_batch(update), size, start)


# ------------------------------------------------------------------ shapes


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of batches.

    Attributes:
      phase: that has it.
      number: of an update of the phase with such a batch, from 0 on.
      rows, length: of the batch.
      updates: of the run that have it.
      flops: of one.
    """

    phase: Phase
    number: int
    rows: int
    length: int
    updates: float
    flops: float


def shapes(run: Run, phase: Phase) -> list[Shape]:
    """Returns the shapes of the training batches of a phase, in the order of their lengths."""
    updates = phase.last_step - phase.first_step
    return [
        Shape(
            phase,
            number,
            rows,
            length,
            share * updates,
            run.flops_per_token(phase, length) * rows * length,
        )
        for (rows, length), (number, share) in _shares(run.training_rows(phase), phase).items()
    ]


def _shares(rows: Rows, phase: Phase) -> dict[tuple[int, int], tuple[int, float]]:
    """Returns (rows, length) of batches -> number of such a batch, and their share of all."""
    if not (isinstance(rows, LabelledRows) and isinstance(rows.loader, BucketedLoader)):
        return {(rows.batch_rows(0), phase.sequence_length): (0, 1.0)}
    numbers: dict[tuple[int, int], int] = {}
    counts: Counter[tuple[int, int]] = Counter()
    for number in range(rows.loader.batches_per_epoch):
        row_numbers, length = rows.loader.batch(number)
        shape = len(row_numbers), length
        numbers.setdefault(shape, number)
        counts[shape] += 1
    return {s: (numbers[s], counts[s] / counts.total()) for s in sorted(counts, key=lambda s: s[1])}
