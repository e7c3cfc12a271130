"""Runs the entry in a folder, for each seed, and writes its log.

    python -m race.run race/records/NAME --class=cpu-45

The folder has train.py. Its log.jsonl gets what train.py prints for the seeds 0, 1, ..., and
results on the second half of the held-out text (rules.py); seeds that it has already are not run
again. Nothing else should run on the machine.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bert_jax.devices import processor
from bert_jax.files.errors import UserError
from bert_jax.tools.cli import command_line
from bert_jax.tools.cli.command_line import Flag
from race.evaluate import RESULT
from race.rules import (
    CLASSES,
    PRINTED,
    ROOT,
    SEEDS,
    Result,
    check_file,
    fixed_sums,
    read_results,
    refuse,
    scores,
    sha256,
)

FLAGS = (
    Flag("FOLDER", "", "Folder of the entry.", missing="the folder of the entry"),
    Flag("class", "cpu-290", "Class of the race.", choices=CLASSES),
    Flag("seeds", SEEDS, "Seeds 0, 1, ...", minimum=1),
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    return command_line.parse("race.run", __doc__, FLAGS, words)


def main(words: Sequence[str]) -> None:
    flags = parse(words)
    folder, class_name = pathlib.Path(flags.folder), getattr(flags, "class")
    train = find_train(folder)
    refuse(folder, check_file(train))
    results = read_results(folder)
    check_log(folder, results, class_name)
    for seed in sorted({*range(flags.seeds)} - {result["seed"] for result in results}):
        lines, result = run_seed(train, class_name, seed)
        with open(folder / "log.jsonl", "a", encoding="utf-8") as log:
            log.write("".join(line + "\n" for line in (*lines, json.dumps(result))))
        results.append(result)
        print(describe(result), flush=True)
    print(f"{folder}: {summarize(scores(results))}")


def find_train(folder: pathlib.Path) -> pathlib.Path:
    """Returns the path of a folder's train.py.

    Raises:
      UserError: there is none.
    """
    if not (path := folder / "train.py").is_file():
        raise UserError(f"{folder} has no train.py: copy race/train.py into it, and edit the copy.")
    return path.resolve()


def check_log(folder: pathlib.Path, results: Sequence[Result], class_name: str) -> None:
    """Raises UserError if a log has results that cannot be continued."""
    now = {"class": class_name, "train.py": sha256(folder / "train.py"), **fixed_sums()}
    for result in results:
        for name, value in now.items():
            if result.get(name) != value:
                raise UserError(
                    f"{folder / 'log.jsonl'} has a run with another {name} ({result.get(name)},"
                    f" now {value}): remove the log."
                )


def run_seed(train: pathlib.Path, class_name: str, seed: int) -> tuple[list[str], Result]:
    """Runs a train.py with the budget of a class, in a process of its own.

    In a class with a number of cores, the process gets the first so many of those that this one may
    use. No compiled program is taken from a cache.

    Returns:
      The lines that it printed before its result; the result with its facts.

    Raises:
      UserError: it failed, its last line is no result, or it did not call the evaluator.
    """
    budget = CLASSES[class_name]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": budget.platform,
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    words = [f"--seed={seed}", f"--seconds={budget.seconds:g}", "--part=report"]
    facts: Result = {"class": class_name, "date": _now().isoformat(timespec="seconds")}
    facts |= {"jax": importlib.metadata.version("jax"), "train.py": sha256(train), **fixed_sums()}
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        score = pathlib.Path(folder) / "score.json"
        try:
            # The process inherits it.
            os.sched_setaffinity(0, sorted(cores)[: budget.cores or None])
            facts["machine"] = _describe_machine(budget.platform)
            begin = _now()
            done = subprocess.run(
                [sys.executable, str(train), *words],
                env=environment | {RESULT: str(score)},
                capture_output=True,
                text=True,
            )
            facts["wall"] = round((_now() - begin).total_seconds(), 1)
        finally:
            os.sched_setaffinity(0, cores)
        *lines, last = done.stdout.splitlines() or [""]
        try:
            result = json.loads(last)
        except ValueError:
            result = None
        if done.returncode or not isinstance(result, dict) or not {*result} >= PRINTED:
            reason = done.stderr.strip().splitlines()[-1:] or ["its last line is no result"]
            raise UserError(f"{train} {' '.join(words)} failed: {reason[0]}")
        if not score.exists():
            raise UserError(f"{train} does not call race.evaluate.score.")
        # The evaluator's own result, whatever was printed.
        return lines, {**facts, **result, **json.loads(score.read_text())}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _describe_machine(name: str) -> str:
    if name != "cpu":
        command = "import jax; print(jax.devices()[0].device_kind)"
        return subprocess.check_output([sys.executable, "-c", command], text=True).strip()
    return processor.describe()


def describe(result: Result) -> str:
    return (
        f"seed {result['seed']}: {result['bits_per_character']:.4f} bits per character,"
        f" {result['steps']:,} steps, {result['seconds']:.1f} s"
    )


def summarize(values: Sequence[float]) -> str:
    """Returns the mean of scores and, if there are two or more, their standard deviation."""
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread} bits per character, {len(values)} seeds"


if __name__ == "__main__":
    command_line.run(main)
