"""The process of a job: alone in its folder, stopped so that it saves, never left behind.

A process holds the lock of its folder as long as it lives, even if the sweep that started it was
killed. If the sweep dies, the kernel sends SIGTERM to the process, which saves and stops.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from typing import BinaryIO

from bert_jax.files.atomic import read_json_lines
from bert_jax.tools.pages.scales import duration
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.slots import Slot

# Runs in the new process, and replaces itself with the program. `preexec_fn` of subprocess would do
# the same, but forks this process, whose libraries may have threads. 1 is PR_SET_PDEATHSIG.
_LAUNCHER = """\
import ctypes, os, signal, sys
parent, cores, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(parent):
    sys.exit("error: the sweep has ended")
if cores:
    os.sched_setaffinity(0, map(int, cores.split(",")))
os.execv(command[0], command)
"""


def try_lock(job: str, workdir: str) -> BinaryIO | None:
    """Returns the locked lock file of a job's folder; None if another process works there."""
    folder = record.folder_of(job, workdir)
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "lock", "ab")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


class Process:
    """A started job.

    Attributes:
      job: job that it runs.
      slot: the part of the machine that it runs on.
    """

    def __init__(self, job: Job, slot: Slot, workdir: str, lock: BinaryIO):
        """Starts the process, whose output is appended to log.txt; `release` closes `lock`."""
        self.job, self.slot = job, slot
        self._lock = lock
        self._started = time.monotonic()
        command = job.command(workdir)
        cores = ",".join(map(str, sorted(slot.cores)))
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), cores]
        self._path = record.log_of(job.name, workdir)
        with open(self._path, "ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [*launcher, *command],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **slot.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the sweep only, which asks it to stop
                pass_fds=(lock.fileno(),),
            )

    def poll(self) -> str | None:
        """Returns None while it runs; then "finished", "stopped", or why it failed."""
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return "finished"
        # A training run saves before it ends with one of the first two.
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM):
            return "stopped"
        if code < 0:
            name = signal.Signals(-code).name
            return f"killed by {name}" + (", perhaps for lack of memory" * (name == "SIGKILL"))
        return f"exit code {code}"

    def release(self) -> None:
        """Unlocks the folder, after the process has ended."""
        self._lock.close()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its children, if it runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def describe(self) -> str:
        """Returns its status line while it runs: step, loss, remaining time at its last speed."""
        parts = [self.job.name]
        folder = self._path.parent
        starts = read_json_lines(folder / "starts.jsonl")
        rows = read_json_lines(folder / "metrics.jsonl")
        training = [row for row in rows if row["split"] == "train"]
        if starts and training:
            last, steps = training[-1], starts[-1]["steps"]
            parts.append(f"step {last['step']}/{steps}")
            if last.get("loss") is not None:
                parts.append(f"loss {last['loss']:.4g}")
            rate = (last.get("speed") or {}).get("steps_per_second") or 1e-9
            parts.append(f"ETA {duration((steps - last['step']) / rate)}")
        else:
            parts.append("prepares data" if self.job.kind == "prepare" else "starts")
        return "  ".join([*parts, f"running for {duration(self.seconds)}"])

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started
