"""Compares the settings of the command `finetune` with a grid, and with transformers' Trainer.

    python -m benchmarks.defaults train.csv --evaluate=dev.csv --model=MODEL \\
        --output=runs.jsonl

Each setting is trained with several seeds and scored on the file to evaluate, by the first metric.
The grid changes the learning rate and the number of epochs of the settings; its best pair is the
one with the highest mean score on that same file, so that it is favoured. Trainer fine-tunes the
same folder with the defaults of its arguments. The scores are kept in a file, and the same command
continues an interrupted comparison.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import command
from benchmarks.side_by_side import (
    Program,
    can_compare,
    describe_machine,
    table,
    take_turns,
)
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.files.atomic import AppendFile, read_json_lines
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.plans.finetuning import Plan, plan_finetuning
from bert_jax.scores.spread import SeedSummary, summarize_seeds
from bert_jax.tasks.supervised import Labelled
from bert_jax.tools.cli.command_line import MODEL, OVERRIDES, Flag
from bert_jax.training.metrics import read_metrics
from bert_jax.training.open import open_run
from bert_jax.training.train import train

DEFAULTS, TRAINER = "defaults", "Trainer"
# Only the score at the end of the run is needed.
SHORT = {"eval.every": "0", "checkpoint.every": "0"}
# `config.task.name` of the tasks that the other program supports.
_TRAINER_TASKS = ("classification", "tagging", "span")

Settings = dict[str, Any]


FLAGS = (
    Flag("TRAIN", "", "file of labelled examples"),
    Flag("evaluate", "", "File to evaluate on.", missing="a file of labelled examples"),
    MODEL,
    Flag("task", "", "As for finetune."),
    Flag("rates", "2e-5,5e-5,1e-4,3e-4,1e-3", "Learning rates of the grid."),
    Flag("epochs", "3,10", "Numbers of epochs of the grid; empty: that of `finetune`."),
    Flag("seeds", 5, "Runs of each setting.", minimum=1),
    Flag("output", "defaults.jsonl", "File that keeps the scores."),
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    """Prints a line for each run, and the table.

    Raises:
      UserError: what `finetune` would raise.
    """
    grid = _numbers("rates", flags.rates), _numbers("epochs", flags.epochs)
    files = flags.train, flags.evaluate
    about = {"model": flags.model, "files": files, "overrides": flags.overrides}
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_finetuning(flags.model, *files, flags.task, folder, flags.overrides)
        with plan.begin(folder, print):
            _compare(plan, folder, grid, flags.seeds, Scores(flags.output, about))


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError:
        raise UserError(f"--{name}={text} are not numbers, such as 1e-4,3e-4.") from None


def _compare(
    plan: Plan,
    folder: str,
    grid: tuple[Sequence[float], Sequence[float]],
    seeds: int,
    done: "Scores",
) -> None:
    assert isinstance(plan.config, FinetuningConfig)
    config = plan.config.replace(SHORT)
    baseline = find_baseline(config, folder)
    print(describe_machine())
    print(*plan.lines, sep="\n")
    settings: dict[str, Settings] = {DEFAULTS: {}}
    rates, numbers = grid
    for rate, epochs in itertools.product(rates, numbers or [config.epochs]):
        changes = {"optimizer.learning_rate": rate, "epochs": epochs}
        settings[f"{rate:g}, {epochs:g} epochs"] = changes
    for seed, (name, changes) in itertools.product(range(seeds), settings.items()):
        if done.lacks(name, seed):
            done.add(name, seed, score(config.replace(changes | {"seed": seed})))
    if format_of(config.init_from) == "huggingface" and can_compare("accelerate", "seqeval"):
        run_trainer(config, seeds, done)
    summaries = {name: summarize_seeds(done.of(name), baseline) for name in done.names()}
    print("\n".join(lines(config.metrics[0], baseline, summaries)))


def find_baseline(config: FinetuningConfig, folder: str) -> float | None:
    """Returns the score of the constant prediction, None if there is none."""
    run = open_run(config, folder)
    rows = run.evaluation[0][0]
    assert isinstance(run.task, Labelled) and isinstance(rows, LabelledRows)
    return run.task.baseline(rows.examples)


class Scores:
    """The scores of runs by setting and seed, in a file of JSON lines.

    Args:
      path: the file; it may have the scores of other comparisons.
      about: what distinguishes this comparison.
    """

    def __init__(self, path: str, about: Mapping[str, Any]):
        self._path = path
        self._about = json.loads(json.dumps(about))
        rows = read_json_lines(path)
        self._rows = [row for row in rows if row["about"] == self._about]

    def lacks(self, name: str, seed: int) -> bool:
        return not any((row["name"], row["seed"]) == (name, seed) for row in self._rows)

    def add(self, name: str, seed: int, score: float) -> None:
        row = {"about": self._about, "name": name, "seed": seed, "score": score}
        with AppendFile(self._path) as file:
            file.write_line(json.dumps(row))
        self._rows.append(row)
        print(f"{name}, seed {seed}: {score:.4f}", flush=True)

    def names(self) -> list[str]:
        return list(dict.fromkeys(row["name"] for row in self._rows))

    def of(self, name: str) -> list[float]:
        return [row["score"] for row in self._rows if row["name"] == name]


def score(config: FinetuningConfig) -> float:
    """Trains once, and returns the first metric of the last step."""
    with tempfile.TemporaryDirectory() as workdir:
        train(config, workdir)
        rows = [row for row in read_metrics(workdir) if row["split"] == "validation"]
    return rows[-1][config.metrics[0]]


def run_trainer(config: FinetuningConfig, seeds: int, done: Scores) -> None:
    """Trains with transformers, in a process of its own."""
    missing = [seed for seed in range(seeds) if done.lacks(TRAINER, seed)]
    if missing and config.task.name in _TRAINER_TASKS:
        settings = {"config": config.to_dict(), "seeds": missing}
        program: Program = (f"{__package__}.rivals.defaults_torch", settings)
        left = iter(missing)
        take_turns(
            {TRAINER: program},
            len(missing),
            lambda name, found: done.add(name, next(left), found["score"]),
        )


def lines(
    metric: str, baseline: float | None, summaries: Mapping[str, SeedSummary]
) -> Iterator[str]:
    """Yields the table: the defaults, the best of the grid, Trainer, and all of the grid."""
    grid = {name: found for name, found in summaries.items() if name not in (DEFAULTS, TRAINER)}
    order = sorted(grid, key=lambda name: -grid[name].mean)
    names = [DEFAULTS, *([TRAINER] if TRAINER in summaries else []), *order]
    rows = {}
    for name in names:
        found = summaries[name]
        spread = found.standard_deviation
        rows[name] = (
            f"{found.mean:.4f}" + (f" ± {spread:.4f}" if spread is not None else ""),
            f"{found.mean - summaries[DEFAULTS].mean:+.4f}",
            f"{found.degenerate} of {found.runs}",
        )
    yield from table((metric, "to defaults", "degenerate"), rows)
    if baseline is not None:
        yield f"constant prediction {baseline:.4f}"
    if order:
        yield f"best of the grid: {order[0]}; its median {_median(grid):.4f}"


def _median(grid: Mapping[str, SeedSummary]) -> float:
    return statistics.median(found.mean for found in grid.values())


if __name__ == "__main__":
    command.start("defaults")
