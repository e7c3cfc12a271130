"""Runs the jobs of a sweep: each after what it needs, as many at a time as there are slots."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bert_jax.config.durations import duration
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep import process as processes
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.process import Process
from bert_jax.tools.sweep.progress import Board
from bert_jax.tools.sweep.slots import Slot

_SECONDS_BETWEEN_LOOKS = 0.2
_LINES_OF_A_FAILURE = 12
_SECONDS_BETWEEN_CHECKS = 5.0
# A failed job may be started again by the cluster: after this time it is taken as failed.
_SECONDS_UNTIL_FAILED = 600.0


@dataclass
class Outcome:
    """How the jobs of a sweep ended.

    Attributes:
      finished: names of complete jobs, those that were complete before included.
      failed: name -> reason.
      skipped: name -> the job that failed.
      signal_name: the signal that stopped the sweep; empty if it ran to its end.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    signal_name: str = ""


class _StopRequest:
    """SIGTERM and SIGINT as a request; `count` tells a second one from the first."""

    def __init__(self):
        self.count, self.name = 0, ""

    def __enter__(self) -> "_StopRequest":
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, _frame) -> None:
        self.count += 1
        self.name = self.name or signal.Signals(number).name


class _Schedule:
    """The state of a sweep that runs."""

    def __init__(
        self,
        selected: Sequence[Job],
        jobs: dict[str, Job],
        slots: Sequence[Slot],
        workdir: str,
        board: Board,
        on_finished: Callable[[Job], object],
    ):
        self._jobs, self._workdir, self._board = jobs, workdir, board
        self._on_finished = on_finished
        self._selected = [job.name for job in selected]
        self._waiting = list(self._selected)
        self._free = list(slots)
        self._busy_elsewhere: set[str] = set()
        self.running: list[Process] = []
        self.outcome = Outcome()

    def has_more(self) -> bool:
        return bool(self._waiting or self.running)

    def start_what_can(self) -> None:
        """Starts jobs, in order, while slots are free; skips what depends on a failed job."""
        for name in list(self._waiting):
            job = self._jobs[name]
            if record.is_finished(name, self._workdir):
                self._waiting.remove(name)
                self.outcome.finished.append(name)
            elif bad := self._failed_need(job):
                self._waiting.remove(name)
                self.outcome.skipped[name] = bad
                record.mark_failed(name, self._workdir, f"it needs {bad}")
                self._board.event(f"{name}: skipped, since it needs {bad}")
            elif self._free and all(record.is_finished(n, self._workdir) for n in job.needs):
                self._start(job)

    def _failed_need(self, job: Job) -> str:
        for need in job.needs:
            if need in self.outcome.failed:
                return need
            if need in self.outcome.skipped:
                return self.outcome.skipped[need]
        return ""

    def _start(self, job: Job) -> None:
        lock = processes.try_lock(job.name, self._workdir)
        if lock is None:
            if job.name not in self._busy_elsewhere:
                self._busy_elsewhere.add(job.name)
                self._board.event(f"{job.name}: waiting, since another process works in its folder")
            return
        if record.is_finished(job.name, self._workdir):  # by that other process
            lock.close()
            return
        self._waiting.remove(job.name)
        is_resumed = record.log_of(job.name, self._workdir).is_file()
        try:
            process = processes.start(job, self._jobs, self._free[0], self._workdir, lock)
        except (UserError, OSError) as error:
            lock.close()
            self._fail(job, str(error))
            return
        slot = self._free.pop(0)
        self.running.append(process)
        where = f" on {slot.describe()}" if slot.cores or slot.environment else ""
        self._board.event(f"{job.name}: {'resumed' if is_resumed else 'started'}{where}")

    def collect(self, is_stopping: bool) -> None:
        """Takes the processes that have ended."""
        for process in list(self.running):
            ending = process.poll()
            if ending is None:
                continue
            job = process.job
            if ending == "finished":
                record.mark_finished(job, self._workdir, process.seconds)
                self.outcome.finished.append(job.name)
            process.release()
            self.running.remove(process)
            self._free.append(process.slot)
            self._free.sort(key=lambda slot: slot.number)
            if ending == "finished":
                done, total = len(self.outcome.finished), len(self._selected)
                took = duration(process.seconds)
                self._board.event(f"{job.name}: finished after {took} ({done} of {total})")
                self._on_finished(job)
            elif is_stopping:
                self._board.event(f"{job.name}: stopped; it will be resumed")
            elif ending == "stopped":
                self._fail(job, "another process stopped it with a signal")
            else:
                self._fail(job, ending)

    def _fail(self, job: Job, reason: str) -> None:
        self.outcome.failed[job.name] = reason
        record.mark_failed(job.name, self._workdir, reason)
        self._board.event(f"{job.name}: failed ({reason})")

    def summary(self) -> str:
        done = len(self.outcome.finished)
        return f"{done} of {len(self._selected)} complete, {len(self.running)} running"


def run_jobs(
    selected: Sequence[Job],
    jobs: dict[str, Job],
    slots: Sequence[Slot],
    workdir: str,
    board: Board,
    on_finished: Callable[[Job], object] = lambda job: None,
) -> Outcome:
    """Runs the selected jobs until all are complete, have failed or are skipped.

    On SIGTERM or SIGINT the running processes are asked to save and stop, and no job is started any
    more; a second signal kills them. The main thread must call it.

    Args:
      selected: the jobs to run, in order. What they need is selected too, or complete.
      jobs: all jobs by name.
      slots: parts of the machine.
      workdir: of the sweep.
      board: prints the progress.
      on_finished: called after each job that this process has completed.
    """
    schedule = _Schedule(selected, jobs, slots, workdir, board, on_finished)
    with _StopRequest() as request:
        asked = 0
        while schedule.running or (schedule.has_more() and not request.count):
            if request.count > asked:
                if not asked:
                    board.event(f"{request.name}: waiting for the running jobs to save")
                for process in schedule.running:
                    process.kill() if asked else process.stop()
                asked = request.count
            schedule.collect(is_stopping=bool(request.count))
            if not request.count:
                schedule.start_what_can()
            board.refresh(schedule.running, schedule.summary())
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    board.refresh([], "")
    schedule.outcome.signal_name = request.name
    return schedule.outcome


def wait_for(job: Job, workdir: str, board: Board, is_waiting: bool) -> str:
    """Waits until all that a job needs is complete, for jobs on several machines.

    Args:
      job: whose needs are looked at.
      workdir: of the sweep, on a file system that the machines share.
      board: prints what is missing.
      is_waiting: whether to wait; otherwise the first answer counts.

    Returns:
      The name of a job that failed, or of one that is not complete if it does not wait; empty if
      all are complete.

    Raises:
      KeyboardInterrupt: on SIGTERM or SIGINT, also in the first process of a container.
    """
    said = False
    with _StopRequest() as request:
        while missing := [name for name in job.needs if not record.is_finished(name, workdir)]:
            if not is_waiting:
                return missing[0]
            for name in missing:
                since = record.seconds_since_failure(name, workdir)
                if since is not None and since > _SECONDS_UNTIL_FAILED:
                    return name
            if not said:
                board.event(f"{job.name}: waiting for {', '.join(missing)}")
                said = True
            if request.count:
                raise KeyboardInterrupt
            time.sleep(_SECONDS_BETWEEN_CHECKS)
    return ""


def describe_failures(outcome: Outcome, workdir: str) -> list[str]:
    """Returns lines with each failed job, why, and the end of its output."""
    lines = []
    for name, reason in outcome.failed.items():
        lines += ["", f"{name} failed: {reason}. Its output is in {record.log_of(name, workdir)}:"]
        lines += [f"    {line}" for line in record.last_lines(name, workdir, _LINES_OF_A_FAILURE)]
    if outcome.skipped:
        lines.append("")
    lines += [f"{name} was skipped: it needs {bad}." for name, bad in outcome.skipped.items()]
    return lines
