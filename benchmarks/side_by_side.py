"""Runs programs side by side on a machine with other load, and prints what they measured.

Each program has a separate process, so that libraries do not share threads or settings. The process
stays alive. All programs are built at once and then measured one at a time, in turns, so that other
load affects all of them.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.devices import processor
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Worker

OURS, THEIRS = "bert_jax", "transformers"
# Packages that determine the speed; the last two are installed only with the extra `parity`.
_PACKAGES = ("jax", "jaxlib", "numpy", "torch", "transformers")
# Texts that are computed one at a time, for their latencies.
_SINGLE_TEXTS = 100

# A module whose `build(**settings)` returns `measure() -> dict`, and these settings.
Program = tuple[str, dict[str, Any]]


def take_turns(
    programs: Mapping[str, Program],
    rounds: int,
    report: Callable[[str, dict[str, Any]], None] = lambda name, answer: None,
) -> dict[str, list[dict[str, Any]]]:
    """Measures each program `rounds` times, in alternating order.

    Args:
      programs: programs by name.
      rounds: turns of each.
      report: called with the name and the answer after each turn.

    Returns:
      The answers of each program, in order.
    """
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    workers = {name: Worker() for name in programs}
    try:
        for name, (module, settings) in programs.items():
            workers[name].start(functools.partial(_build, module, settings))
        for worker in workers.values():
            worker.finish()
        for i in range(rounds):
            for name in list(workers)[:: -1 if i % 2 else 1]:
                answers[name].append(workers[name].run(_measure))
                report(name, answers[name][-1])
    finally:
        for worker in workers.values():
            worker.end()
    return answers


# In a process of `take_turns`: what measures its program.
_built: Callable[[], dict[str, Any]]


def _build(module: str, settings: dict[str, Any]) -> None:
    # The programs share a GPU's memory, all of which jax would reserve.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    global _built
    _built = importlib.import_module(module).build(**settings)


def _measure() -> dict[str, Any]:
    return _built()


def time_steps(step: Callable[[], None], wait: Callable[[], None]) -> list[float]:
    """Returns the seconds of a step: the means of three groups, of half a second or one step each.

    Args:
      step: starts a step; on a GPU, the host goes on while the device computes, as in training.
      wait: waits for the device.
    """

    def seconds_of(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        return (time.perf_counter() - start) / count

    seconds_of(1)
    count = math.ceil(0.5 / seconds_of(1))
    return [seconds_of(count) for _ in range(3)]


def time_texts(
    compute: Callable[[list[str], int], Any], texts: list[str], sizes: Sequence[int] = (0,)
) -> dict[str, Any]:
    """Returns the seconds of a call with all texts, of calls with one text each, and the outputs.

    Args:
      compute: texts, tokens of a batch -> an array of floats for each text.
      texts: all texts; the first 100 are computed alone, too.
      sizes: tokens of a batch, each of which is measured with all texts; 0: the program's own.

    Returns:
      `seconds`, by size; `latencies`, a list; `outputs`, float32[texts, ...].
    """
    seconds, values, latencies = {}, None, []
    for size in sizes:
        start = time.perf_counter()
        values = compute(texts, size)
        seconds[size] = time.perf_counter() - start
    for text in texts[:_SINGLE_TEXTS]:
        start = time.perf_counter()
        compute([text], sizes[0])
        latencies.append(time.perf_counter() - start)
    return {
        "seconds": seconds,
        "latencies": latencies,
        "outputs": np.array(values, np.float32),
    }


def run_command(command: str, flags: Sequence[str]) -> str:
    """Runs `bert_jax COMMAND` in a new process; returns what it printed.

    Training keeps no compiled programs, so that every run compiles.

    Raises:
      UserError: it failed.
    """
    kept = ["--compilation_cache=off"] if command == "train" else []
    words = [sys.executable, "-m", "bert_jax", *command.split(), *flags, *kept]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise UserError(f"bert_jax {command} failed: {' '.join(last)}")
    return ended.stdout


def table(header: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table: the names of the rows, and columns that end at one place."""
    lines = [("", *header), *((name, *cells) for name, cells in rows.items())]
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    for name, *cells in lines:
        shown = (f"{cell:>{width}}" for cell, width in zip(cells, others, strict=True))
        yield "  ".join([f"{name:<{first}}", *shown]).rstrip()


def describe_machine(*more: str) -> str:
    """One line: processor, cores, Python and versions, also of `more` packages."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in installed(*_PACKAGES, *more)
    )
    return f"{processor.describe()}; Python {platform.python_version()}, {versions}"


def installed(*names: str) -> list[str]:
    """Returns which packages are installed; by default, of those that determine the speed."""
    return [name for name in names or _PACKAGES if importlib.util.find_spec(name)]


def can_compare(*more: str) -> bool:
    """Returns whether torch, transformers and `more` packages are installed; says so if not."""
    needed = ("torch", "transformers", *more)
    if missing := sorted(set(needed) - set(installed(*needed))):
        print(
            f"{THEIRS} is left out, without {', '.join(missing)}:"
            " pip install -c constraints.txt -e '.[parity,test]'"
        )
    return not missing
