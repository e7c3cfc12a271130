"""Measures where the time of a run goes, for its goodput (`scores.goodput`).

training      steps, and waiting for their results
data          waiting for batches
compilation   tracing and compiling, in evaluations too
evaluation    evaluations and their reports
checkpoints   saving, as far as training waits for it
other         before the first step (opening data, parameters) and after the last
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import jax

from bert_jax.files.atomic import AppendFile, read_json_lines
from bert_jax.scores.goodput import CATEGORIES, NAME

# Prefix of the jax.monitoring events of tracing, lowering and compiling.
_COMPILATION = "/jax/core/compile/"
Item = TypeVar("Item")


class Goodput:
    """Measures where the time goes in one start of a run, beginning when this object is created."""

    def __init__(self, workdir: str):
        self._path = os.path.join(workdir, NAME)
        self._seconds: dict[str, float] = dict.fromkeys(CATEGORIES, 0.0)
        self._category, self._since = "other", time.perf_counter()
        self._compiled: list[tuple[float, float]] = []  # (begin, end), none within another
        self._thread = threading.get_ident()
        self._file: AppendFile | None = None
        self._start = self._step = 0

    @contextlib.contextmanager
    def recording(self, step: int, *, writes: bool) -> Iterator[None]:
        """Counts compilation separately in the block, and writes a line at its start and its end.

        Args:
          step: steps done before the block.
          writes: whether this process writes the file.
        """
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        try:
            if writes:
                self._start = 1 + max((r["start"] for r in read_json_lines(self._path)), default=-1)
                self._file = AppendFile(self._path)
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
        """Counts the time of the block in this category instead of the enclosing one."""
        around = self._category
        self._switch(category)
        try:
            yield
        finally:
            self._switch(around)

    def timed(self, category: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items; counts the time spent waiting for them in a category."""
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
        """Called by jax when an event has ended; counts compilations of this thread."""
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
