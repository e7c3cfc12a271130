"""Fine-tunes encoders at several rates on several files, and compares the rates with `finetune`'s.

    python -m benchmarks.rates DATA --encoders=plain=quickstart,paper=runs/tiny --log=rates.jsonl

DATA has two files for each set, NAME.csv and NAME_dev.csv (or .jsonl, .json, .conll). All settings
but the rate are those of `finetune`; a score is the first metric of the last step. Finished runs
are in --log, a line each, and the same command goes on where it was stopped. The table has the mean
over seeds for each rate, and the last lines say how far the rate of `finetune` is from the best.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import command
from benchmarks.defaults import SHORT, score
from benchmarks.side_by_side import describe_machine, table
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.files.atomic import AppendFile, read_json_lines
from bert_jax.files.errors import UserError
from bert_jax.plans.finetuning import plan_finetuning
from bert_jax.tools.cli.command_line import OVERRIDES, Flag

_DEV = "_dev"

FLAGS = (
    Flag("DATA", "", "folder of the files"),
    Flag("encoders", "", "NAME=FOLDER, separated by commas.", missing="NAME=FOLDER"),
    Flag("rates", "3e-4,1e-3,3e-3,6e-3", "Rates, besides that of `finetune`."),
    Flag("sets", "", "Names of sets, separated by commas; empty: all."),
    Flag("seeds", 3, "Runs of each cell.", minimum=1),
    Flag("log", "rates.jsonl", "File that keeps the scores."),
    OVERRIDES,
)
# Set, encoder, rate, seed.
Cell = tuple[str, str, float, int]


def run(flags: argparse.Namespace) -> None:
    """Trains what is missing in the log, and prints the table.

    Raises:
      UserError: a set lacks a file, or what `finetune` raises.
    """
    encoders = dict(entry.partition("=")[::2] for entry in flags.encoders.split(","))
    files = find_sets(flags.data, [name for name in flags.sets.split(",") if name])
    rates = [float(rate) for rate in flags.rates.split(",") if rate]
    rows = read_json_lines(flags.log)
    done = {(row["set"], row["encoder"], row["rate"], row["seed"]): row["score"] for row in rows}
    print(describe_machine(), flush=True)
    chosen = {
        (name, encoder): chosen_rate(encoders[encoder], files[name], flags.overrides)
        for name, encoder in itertools.product(files, encoders)
    }
    wanted = itertools.product(range(flags.seeds), [None, *rates], encoders, files)
    for seed, rate, encoder, name in wanted:
        rate = chosen[name, encoder] if rate is None else rate
        if (cell := (name, encoder, rate, seed)) in done:
            continue
        values = {"optimizer.learning_rate": rate, "seed": seed, **flags.overrides}
        found = train(encoders[encoder], files[name], values)
        with AppendFile(flags.log) as file:
            row = dict(zip(("set", "encoder", "rate", "seed"), cell, strict=True))
            file.write_line(json.dumps(row | {"score": round(found, 5)}))
        done[cell] = found
        print(*cell, f"{found:.4f}", flush=True)
    print("\n".join(lines(done, rates, chosen)))


def find_sets(folder: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns set -> (file to train on, file to evaluate on).

    Raises:
      UserError: there is no such set.
    """
    paths = {path.stem: str(path) for path in sorted(pathlib.Path(folder).iterdir())}
    found = {
        name: (path, paths[name + _DEV]) for name, path in paths.items() if name + _DEV in paths
    }
    if absent := [name for name in names if name not in found]:
        raise UserError(f"{folder} has no files {absent[0]} and {absent[0]}{_DEV}.")
    return {name: found[name] for name in names or found}


def chosen_rate(encoder: str, files: tuple[str, str], given: Mapping[str, Any]) -> float:
    """Returns the rate that `finetune` chooses."""
    with tempfile.TemporaryDirectory() as folder:
        return plan_finetuning(encoder, *files, "", folder, given).config.optimizer.learning_rate


def train(encoder: str, files: tuple[str, str], given: Mapping[str, Any]) -> float:
    """Returns the score of one run, by the settings of `finetune` and given ones."""
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_finetuning(encoder, *files, "", folder, {**SHORT, **given})
        assert isinstance(plan.config, FinetuningConfig)
        with plan.begin(folder, print):
            return score(plan.config)


def lines(
    done: Mapping[Cell, float], rates: Sequence[float], chosen: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    """Yields the table, and for each encoder how far the chosen rate is from the best one.

    Args:
      done: scores of runs.
      rates: columns of the table, after that of the chosen rate.
      chosen: set and encoder -> rate of `finetune`; the rows of the table.
    """
    scores: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(dict)
    for (name, encoder, rate, _), value in sorted(done.items()):
        scores[name, encoder].setdefault(rate, []).append(value)
    rows: dict[str, list[str]] = {}
    gaps: dict[str, list[float]] = defaultdict(list)
    for key, rate in chosen.items():
        means = {rate: statistics.mean(values) for rate, values in scores[key].items()}
        cells = (f"{means[r]:.3f}" if r in means else "-" for r in (rate, *rates))
        rows[", ".join(key)] = [f"{rate:g}", *cells]
        gaps[key[1]].append(max(means.values()) - means[rate])
    yield from table(["rate of finetune", "score", *(f"{rate:g}" for rate in rates)], rows)
    for encoder, values in gaps.items():
        yield (
            f"{encoder}: `finetune` is {statistics.mean(values):.4f} below the best rate on"
            f" average, at most {max(values):.4f}"
        )


if __name__ == "__main__":
    command.start("rates")
