"""Measures what packing gives: real tokens a second, several examples in a row against one.

    python -m bert_jax benchmark pack --config=FILE --config.data.max_examples_per_row=8 \\
        [--steps=100] [--rounds=3]

Both sides are trained as a user does it, in turns: one with the configuration, one with
config.data.max_examples_per_row=1, where labelled examples are batched by length. The first `steps`
updates of a run, with its compilation, do not count; then as many do. Real tokens are positions
that are not padding, counted in the rows of these updates.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Rows
from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.machine import describe_machine
from bert_jax.training.metrics import read_metrics
from bert_jax.training.open import open_run

SINGLE, PACKED = "one example a row", "packed"
_COLUMNS = "{:20} {:>10} {:>14} {:>18}  {}"


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two.

    Attributes:
      fill: fraction of the positions that are not padding, in the updates measured.
      speeds: positions a second, for each round.
    """

    fill: float
    speeds: list[float]

    @property
    def real(self) -> list[float]:
        """Tokens a second that are not padding."""
        return [speed * self.fill for speed in self.speeds]


def run(config: RunConfig, words: Sequence[str], steps: int, rounds: int) -> None:
    """Prints the table.

    Args:
      config: resolved from `words`.
      words: flags of `python -m bert_jax train`.
      steps: updates before those measured, and measured, of each run.
      rounds: runs of each side.

    Raises:
      UserError: the configuration does not pack, or has several phases.
    """
    if config.data.max_examples_per_row < 2:
        raise UserError(
            f"config.data.max_examples_per_row={config.data.max_examples_per_row} does not pack:"
            " give 2 or more."
        )
    if len(config.phase_entries) > 1:
        raise UserError(f"config.phases={config.phase_entries} has several phases: give one.")
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        shorter = [
            *(f"--config.{name}=0" for name in ("epochs", "examples", "tokens")),
            *(f"--config.steps={2 * steps}", f"--config.log.every={steps}"),
            *("--config.eval.every=0", "--config.checkpoint.every=0"),
        ]
        sides = {}
        for name, pack in ((SINGLE, 1), (PACKED, config.data.max_examples_per_row)):
            more = [*words, *shorter, f"--config.data.max_examples_per_row={pack}"]
            values: dict[str, object] = {"data.max_examples_per_row": pack}
            if config.has_corpus:
                values["data.dir"] = os.path.join(folder, f"data-{pack}")
                more.append(f"--config.data.dir={values['data.dir']}")
            opened = open_run(config.replace(values), os.path.join(folder, f"run-{pack}"))
            rows = opened.training_rows(opened.phases[0])
            sides[name] = (more, Side(fill_rate(rows, steps, 2 * steps), []))
        for i in range(rounds):
            for name in list(sides)[:: -1 if i % 2 else 1]:
                more, side = sides[name]
                with tempfile.TemporaryDirectory(dir=folder) as workdir:
                    side.speeds.append(_train(more, workdir))
        print("\n".join(table({name: side for name, (_, side) in sides.items()})))


def fill_rate(rows: Rows, start: int, stop: int) -> float:
    """Returns the fraction of real tokens in the updates from `start` to before `stop`."""
    real = positions = 0
    for number in range(start, stop):
        ids = rows.batch(number, 0, rows.batch_rows(number))["example_ids"]
        real, positions = real + int(np.count_nonzero(ids)), positions + ids.size
    return real / positions


def table(sides: Mapping[str, Side]) -> Iterator[str]:
    """Yields a line for each side, and how much of what the padding took is won."""
    yield _COLUMNS.format("", "fill", "positions/s", "real tokens/s", "in each round")
    for name, side in sides.items():
        yield _COLUMNS.format(
            name,
            f"{side.fill:.1%}",
            f"{statistics.median(side.speeds):,.0f}",
            f"{statistics.median(side.real):,.0f}",
            " ".join(f"{speed:,.0f}" for speed in side.real),
        )
    single, packed = sides[SINGLE], sides[PACKED]
    ratio = statistics.median(packed.real) / statistics.median(single.real)
    yield (
        f"packed rows have {ratio:.2f} times as many real tokens a second; the inverse of the fill"
        f" rate of single rows is {1 / single.fill:.2f}, a fraction of {ratio * single.fill:.2f}"
    )


def _train(words: Sequence[str], workdir: str) -> float:
    """Returns the positions a second of the second half of a run."""
    command = [sys.executable, "-m", "bert_jax", "train", *words, f"--workdir={workdir}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [row for row in read_metrics(workdir) if row["split"] == "train"]
    return rows[-1]["speed"]["tokens_per_second"]
