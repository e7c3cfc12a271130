"""Training batches, indexed by step, and their shapes."""

import dataclasses
from collections import Counter
from collections.abc import Iterator

import jax

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Batch, Rows
from bert_jax.data.labelled.batching import BucketedLoader
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices import sharding
from bert_jax.training.run import Run


def host_batch(run: Run, phase: Phase, step: int) -> Batch:
    """Returns this process's rows of the batch of step number `step`, as they are in the data.

    The last rows may be padding (`Run.padded_rows`).
    """
    rows, number = run.training_rows(phase), step - phase.data_step
    size = run.padded_rows(phase, rows.batch_rows(number))
    return rows.batch(number, *sharding.local_rows(run.mesh, size))


def training_batches(run: Run, phase: Phase, step: int) -> Iterator[dict[str, jax.Array]]:
    """Yields the batches from step number `step` to the end of the phase, on the devices."""
    for number in range(step, phase.last_step):
        rows = run.training_rows(phase).batch_rows(number - phase.data_step)
        yield run.put_batch(host_batch(run, phase, number), run.padded_rows(phase, rows))


# ------------------------------------------------------------------ shapes


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of training batches.

    Attributes:
      phase: the phase with such batches.
      kind: what the steps train: the phase, or the same on next tokens (`Run.kinds_of_steps`).
      number: the first step of the phase with such a batch, counted from 0.
      rows, length: shape of `input_ids`, with rows of padding.
      own_rows: number of rows without those of padding.
      steps: number of steps with such a batch.
      flops: model FLOPs of a step.
    """

    phase: Phase
    kind: Phase
    number: int
    rows: int
    length: int
    own_rows: int
    steps: float
    flops: float

    @property
    def name(self) -> str:
        """Returns "32 x 64 tokens", or "32 x 64 tokens, next ones predicted"."""
        return f"{self.rows} x {self.length} tokens" + (
            ", next ones predicted" if self.kind != self.phase else ""
        )


def shapes(run: Run, phase: Phase) -> list[Shape]:
    """Returns the shapes of the training batches of a phase, in the order of their lengths."""
    steps = phase.last_step - phase.first_step
    found = []
    for (own_rows, length), (number, share) in _shares(run.training_rows(phase), phase).items():
        rows = run.padded_rows(phase, own_rows)
        for kind, part in run.kinds_of_steps(phase).items():
            flops = run.flops_per_token(kind, length) * rows * length
            sizes = number, rows, length, own_rows, part * share * steps
            found.append(Shape(phase, kind, *sizes, flops))
    return found


def padding_share(run: Run) -> float:
    """Returns the rows of padding that devices and microbatches need, as a share of all rows.

    It is 0 for a run that is only evaluated.
    """
    phases = [phase for phase in run.phases if phase.last_step > phase.first_step]
    if not run.training or not phases:
        return 0.0
    found = [shape for phase in phases for shape in shapes(run, phase)]
    rows = sum(shape.steps * shape.rows for shape in found)
    return 1 - sum(shape.steps * shape.own_rows for shape in found) / rows


def _shares(rows: Rows, phase: Phase) -> dict[tuple[int, int], tuple[int, float]]:
    """Returns (rows, length) -> number of the first such batch, and the share of such batches."""
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
