"""How far the jobs of a sweep are: lines for a terminal, refreshed in place, or for a file."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from bert_jax.config.durations import duration
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.process import Process

_SECONDS_BETWEEN_LINES = 60.0  # of a running job, where lines cannot be refreshed


def describe(process: Process, workdir: str) -> str:
    """Returns the line of a running job: step, loss, remaining time at its last speed."""
    job = process.job
    parts = [job.name]
    rows = record.read_rows(job.name, workdir) if job.kind == "train" else []
    training = [row for row in rows if row["split"] == "train"]
    steps = record.total_steps(job.name, workdir)
    if training and steps:
        last = training[-1]
        parts.append(f"step {last['step']}/{steps}")
        if last.get("loss") is not None:
            parts.append(f"loss {last['loss']:.4g}")
        rate = (last.get("speed") or {}).get("steps_per_second") or 1e-9
        parts.append(f"ETA {duration((steps - last['step']) / rate)}")
    else:
        parts.append("prepares data" if job.kind == "prepare" else "starts")
    parts.append(f"running for {duration(process.seconds)}")
    return "  ".join(parts)


class Board:
    """Prints events, and below them, on a terminal, a line for each running job."""

    def __init__(self, workdir: str, stream: TextIO | None = None):
        self._workdir = workdir
        self._stream = stream or sys.stdout
        self._shown = 0
        self._last: dict[str, float] = {}

    def event(self, text: str) -> None:
        """Prints a line that stays."""
        self._show([])
        print(text, file=self._stream, flush=True)

    def refresh(self, running: Sequence[Process], summary: str) -> None:
        """Shows the running jobs; elsewhere than on a terminal, each once a minute."""
        if self._stream.isatty():
            lines = [describe(process, self._workdir) for process in running]
            self._show([*lines, summary] if lines else [])
            return
        now = time.monotonic()
        for process in running:
            if now - self._last.setdefault(process.job.name, now) >= _SECONDS_BETWEEN_LINES:
                self._last[process.job.name] = now
                self.event(describe(process, self._workdir))

    def _show(self, lines: Sequence[str]) -> None:
        """Replaces the lines of the running jobs."""
        if self._shown:
            self._stream.write(f"\x1b[{self._shown}A\x1b[J")
        width = shutil.get_terminal_size().columns - 1
        self._stream.writelines(f"{line[:width]}\n" for line in lines)
        self._stream.flush()
        self._shown = len(lines)
