"""The race: which recipe learns most in a given time.

    python -m bert_jax benchmark recipe bert=configs/tiny.py fast=configs/fast.py:tiny \\
        --seconds=60 --seeds=3 --output=DIR [--config.data.source=text:PATH ...]

A recipe is NAME=CONFIG or "NAME=CONFIG;FIELD=VALUE;...". Each is trained for as many updates as it
does in that time, so that its schedule ends with it; recipes alternate, one seed at a time.
Held-out masked words are those of 15 % of the tokens, whatever a recipe trains on. Seconds are
those of the training loop, compilation included and evaluations left out. The output folder has the
runs, race.json with all curves, and race.svg. Complete runs are kept if the race is started again.
"""

import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.benchmark.curves import Curve, plot, seconds_to
from bert_jax.benchmark.machine import describe_machine
from bert_jax.files.atomic import read_json, write_json, write_text
from bert_jax.training.metrics import read_metrics

LOSS, ACCURACY = "masked_lm_loss", "masked_lm_accuracy"
# Updates from which the rate of a recipe is measured: the second half of them.
_CALIBRATION_STEPS = 40
_EVALUATIONS = "5%"
_COLUMNS = "{:20} {:>9} {:>9} {:>18} {:>10} {:>22} {:>8}"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A configuration under a name.

    Attributes:
      name: of its rows and files.
      config: configuration file, with its argument.
      overrides: (field, value) of the configuration.
    """

    name: str
    config: str
    overrides: tuple[tuple[str, str], ...] = ()

    def flags(self) -> list[str]:
        fields = (f"--config.{name}={value}" for name, value in self.overrides)
        return [f"--config={self.config}", *fields]


def parse_recipe(text: str) -> Recipe:
    """Returns the recipe of "NAME=CONFIG;FIELD=VALUE;...".

    Raises:
      ValueError: it has another form.
    """
    head, *rest = (part.strip() for part in text.split(";"))
    name, equals, config = head.partition("=")
    pairs = [part.partition("=") for part in rest if part]
    if not (name.replace("-", "_").isidentifier() and equals and config) or not all(
        field and sign for field, sign, _ in pairs
    ):
        raise ValueError(
            f"{text!r} is not NAME=CONFIG;FIELD=VALUE;..., such as fast=configs/fast.py:tiny."
        )
    return Recipe(name, config, tuple((field, value) for field, _, value in pairs))


def run(
    recipes: Sequence[Recipe], words: Sequence[str], seconds: float, seeds: int, output: str
) -> None:
    """Runs the race; prints a line for each run, and the table.

    Args:
      recipes: the first is the one that others are compared with.
      words: flags of `python -m bert_jax train` for all of them.
      seconds: of training, for each run.
      seeds: runs of each recipe.
      output: folder of the results.

    Raises:
      ValueError: two recipes have the same name, or a run failed or does not predict masked words.
    """
    names = [recipe.name for recipe in recipes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Two recipes are called {min(twice)}: give them different names.")
    print(describe_machine())
    os.makedirs(output, exist_ok=True)
    steps = {r.name: _steps(r, words, seconds, output) for r in recipes}
    curves: dict[str, list[Curve]] = {name: [] for name in names}
    for seed in range(seeds):
        for recipe in recipes[:: 1 if seed % 2 else -1]:
            workdir = _train(recipe, words, steps[recipe.name], seed, output)
            curve = read_curve(workdir)
            curves[recipe.name].append(curve)
            end = curve.points[-1]
            print(
                f"{recipe.name}, seed {seed}: {end.step:,} updates, {end.seconds:.1f} s,"
                f" loss {end.loss:.3f}, accuracy {end.accuracy:.1%}",
                flush=True,
            )
    write_json(
        os.path.join(output, "race.json"),
        {name: [curve.to_json() for curve in found] for name, found in curves.items()},
    )
    write_text(os.path.join(output, "race.svg"), plot(curves))
    print("\n".join(table(curves)))


def table(curves: Mapping[str, Sequence[Curve]]) -> Iterator[str]:
    """Yields a line for each recipe; the target is the mean final loss of the first one."""
    ends = {name: [curve.points[-1] for curve in found] for name, found in curves.items()}
    target = statistics.mean(end.loss for end in next(iter(ends.values())))
    yield _COLUMNS.format(
        *(
            "",
            "updates",
            "seconds",
            "held-out loss",
            "accuracy",
            f"seconds to {target:.3f}",
            "ratio",
        )
    )
    first = None
    for name, found in curves.items():
        losses = [end.loss for end in ends[name]]
        spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
        times = [seconds_to(curve, target) for curve in found]
        reached = [time for time in times if time is not None]
        mean = statistics.mean(reached) if len(reached) == len(times) else None
        first = mean if first is None else first
        missed = f"{len(reached)} of {len(times)} reach it"
        yield _COLUMNS.format(
            name,
            f"{ends[name][0].step:,}",
            f"{statistics.mean(end.seconds for end in ends[name]):.1f}",
            f"{statistics.mean(losses):.3f}{spread}",
            f"{statistics.mean(end.accuracy for end in ends[name]):.1%}",
            missed if mean is None else f"{mean:.1f}",
            f"{mean / first:.2f}" if mean is not None and first else "",
        ).rstrip()


def read_curve(workdir: str) -> Curve:
    """Returns the evaluations of a run.

    Raises:
      ValueError: it has none of masked words.
    """
    rows = [row for row in read_metrics(workdir) if row["split"] == "validation"]
    if not rows or LOSS not in rows[-1]:
        raise ValueError(
            f"{workdir} has no evaluation of masked words: a recipe trains on them, with held-out"
            " text (config.data.validation_share)."
        )
    return Curve.from_rows(rows, LOSS, ACCURACY)


def _steps(recipe: Recipe, words: Sequence[str], seconds: float, output: str) -> int:
    """Prepares the data and returns the number of updates that take the time."""
    path = os.path.join(output, f"{recipe.name}.json")
    if os.path.isfile(path):
        known = read_json(path)
        if known["seconds"] == seconds and known["flags"] == [*recipe.flags(), *words]:
            return known["steps"]
        raise ValueError(
            f"{output} has a race with other settings of {recipe.name}: choose another --output."
        )
    _bert_jax("prepare", [*recipe.flags(), *words, _data_dir(recipe, output)])
    workdir = os.path.join(output, f"{recipe.name}-calibration")
    shutil.rmtree(workdir, ignore_errors=True)
    lengths = _lengths(_CALIBRATION_STEPS, log=_CALIBRATION_STEPS // 2, evaluate="0")
    flags = [*recipe.flags(), *words, *lengths, "--config.eval.batches=1"]
    _bert_jax("train", [*flags, f"--workdir={workdir}", _data_dir(recipe, output)])
    speed = [row["speed"] for row in read_metrics(workdir) if row["split"] == "train"][-1]
    steps = max(20, int(seconds * speed["steps_per_second"]))
    content = {"seconds": seconds, "flags": [*recipe.flags(), *words], "steps": steps}
    write_json(path, content)
    shutil.rmtree(workdir)
    return steps


def _train(recipe: Recipe, words: Sequence[str], steps: int, seed: int, output: str) -> str:
    """Trains with a seed, unless that is done; returns the folder of the run."""
    workdir = os.path.join(output, f"{recipe.name}-seed{seed}")
    lengths = _lengths(steps, log=_EVALUATIONS, evaluate=_EVALUATIONS)
    flags = [*recipe.flags(), *words, *lengths, f"--config.seed={seed}"]
    _bert_jax("train", [*flags, f"--workdir={workdir}", _data_dir(recipe, output)])
    return workdir


def _lengths(steps: int, log: Any, evaluate: str) -> list[str]:
    values = {"steps": steps, "epochs": 0.0, "examples": 0, "tokens": 0}
    values |= {"log.every": log, "eval.every": evaluate, "checkpoint.every": 0}
    return [f"--config.{name}={value}" for name, value in values.items()]


def _data_dir(recipe: Recipe, output: str) -> str:
    return f"--config.data.dir={os.path.join(output, f'{recipe.name}-data')}"


def _bert_jax(command: str, flags: Sequence[str]) -> None:
    """Runs a command of this program.

    Raises:
      ValueError: it failed.
    """
    words = [sys.executable, "-m", "bert_jax", command, *flags]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise ValueError(f"python -m bert_jax {command} failed: {' '.join(last)}")
