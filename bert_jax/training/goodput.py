"""Goodput: the share of a run's wall time that trained, and where the rest went.

`Goodput` measures one start of a run and appends to goodput.jsonl, at each report and checkpoint:

    {"start": 0, "step": 100, "time": 1764170000.0, "seconds": {"training": 52.1, "data": 0.4, ...}}

`start` is the number of the start, `time` the Unix time of the line, `seconds` what the start has
spent so far, by category:

    training      steps, and waiting for their results
    data          waiting for batches
    compilation   tracing and compiling, in evaluations too
    evaluation    evaluations and their reports
    checkpoints   saving, as far as training waits for it
    other         before the first step (opening data, parameters) and after the last

`summarize` joins the starts. What a start spent after the checkpoint from which the next one
resumed was done again: it is `lost`. The time between the last line of a start and the beginning of
the next is `stopped`, and not a part of the wall time; after a kill, that includes what the start
did since its last line.
"""

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from bert_jax.files.atomic import AppendFile, read_json_lines

NAME = "goodput.jsonl"
_CATEGORIES = tuple("training data compilation evaluation checkpoints other".split())
# Of jax.monitoring: tracing, lowering and compiling.
_COMPILATION = "/jax/core/compile/"
Item = TypeVar("Item")


class Goodput:
    """Measures where the time of one start goes, from its creation on.

    Args:
      workdir: folder of the run.
    """

    def __init__(self, workdir: str):
        self._path = os.path.join(workdir, NAME)
        self._seconds: dict[str, float] = dict.fromkeys(_CATEGORIES, 0.0)
        self._category, self._since = "other", time.perf_counter()
        self._compiled: list[tuple[float, float]] = []  # (begin, end), none within another
        self._thread = threading.get_ident()
        self._file: AppendFile | None = None
        self._start = 0

    @contextlib.contextmanager
    def recording(self, step: int, *, writes: bool) -> Iterator[None]:
        """Counts compilation apart in the block, and writes lines at its beginning and its end.

        Args:
          step: steps done before.
          writes: whether this process writes the file.
        """
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._heard)
        try:
            if writes:
                self._start = 1 + max((r["start"] for r in read_json_lines(self._path)), default=-1)
                self._file = AppendFile(self._path)
            self._step = step
            self.record(step)
            yield
            self.record(self._step)  # not after an error: steps since the last line may be lost
        finally:
            jax.monitoring.unregister_event_duration_listener(self._heard)
            if self._file:
                self._file.close()
                self._file = None

    @contextlib.contextmanager
    def time(self, category: str) -> Iterator[None]:
        """Counts the time of the block as that of a category, and not as that around it."""
        around = self._category
        self._switch(category)
        try:
            yield
        finally:
            self._switch(around)

    def timed(self, category: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items; the time in which they are waited for is that of a category."""
        iterator = iter(items)
        while True:
            with self.time(category):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def record(self, step: int, *, sync: bool = False) -> None:
        """Writes a line.

        Args:
          step: steps done.
          sync: whether to return when it is on disk.
        """
        self._switch(self._category)
        self._step = step
        if self._file:
            seconds = {name: round(value, 3) for name, value in self._seconds.items()}
            line = {"start": self._start, "step": step, "time": time.time(), "seconds": seconds}
            self._file.write_line(json.dumps(line))
            if sync:
                self._file.sync()

    def _switch(self, category: str) -> None:
        now = time.perf_counter()
        self._seconds[self._category] += now - self._since
        self._category, self._since = category, now

    def _heard(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Is told by jax that something has ended."""
        if not event.startswith(_COMPILATION) or threading.get_ident() != self._thread:
            return
        end = time.perf_counter()
        begin, new = end - duration_secs, duration_secs
        while (
            self._compiled and self._compiled[-1][0] >= begin
        ):  # a part of this, as inner jits are
            inner = self._compiled.pop()
            new -= inner[1] - inner[0]
        self._compiled.append((begin, end))
        self._seconds["compilation"] += new
        self._seconds[self._category] -= new


def read_goodput(workdir: str | os.PathLike) -> dict[str, Any]:
    """Returns `summarize` of a run's goodput.jsonl; {} without one."""
    return summarize(read_json_lines(os.path.join(workdir, NAME)))


def summarize(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the goodput of a run.

    Args:
      lines: those of goodput.jsonl.

    Returns:
      {"goodput": share of the wall time that trained, "wall_seconds": of all starts,
      "seconds": {category: ...} with `lost`, whose sum is the wall time, "stopped_seconds": between
      starts, "starts": their number}; {} without lines.
    """
    if not lines:
        return {}
    groups = itertools.groupby(lines, key=lambda line: line["start"])
    starts = [list(group) for _, group in groups]
    seconds: dict[str, float] = dict.fromkeys((*_CATEGORIES, "lost"), 0.0)
    stopped = 0.0
    for start, after in itertools.zip_longest(starts, starts[1:]):
        last = kept = start[-1]
        if after:
            kept = max((r for r in start if r["step"] <= after[0]["step"]), key=_spent)
            stopped += after[0]["time"] - _spent(after[0]) - last["time"]
        for name, value in kept["seconds"].items():
            seconds[name] += value
        seconds["lost"] += _spent(last) - _spent(kept)
    wall = sum(seconds.values())
    return {
        "goodput": round(seconds["training"] / wall, 4) if wall else 0.0,
        "wall_seconds": round(wall, 3),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "stopped_seconds": round(stopped, 3),
        "starts": len(starts),
    }


def _spent(line: dict[str, Any]) -> float:
    return sum(line["seconds"].values())
