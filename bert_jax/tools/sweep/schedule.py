"""Runs the jobs of a sweep: each after what it needs, as many at a time as there are slots."""

import contextlib
import functools
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bert_jax.files.errors import UserError
from bert_jax.tools.pages.scales import duration
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.process import Process, try_lock
from bert_jax.tools.sweep.slots import Slot

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_LINES = 60.0  # of a running job
_LINES_OF_A_FAILURE = 12


@dataclass
class Outcome:
    """How the jobs of a sweep ended."""

    finished: list[str] = field(default_factory=list)  # those that were complete before included
    failed: dict[str, str] = field(default_factory=dict)  # name -> reason
    skipped: dict[str, str] = field(default_factory=dict)  # name -> the job that failed
    signal_name: str = ""  # that stopped the sweep; empty if it ran to its end

    def describe_failures(self, workdir: str) -> list[str]:
        """Returns lines with each failed job, why, and the end of its output."""
        lines = []
        for job, reason in self.failed.items():
            path = record.log_of(job, workdir)
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            lines += ["", f"{job} failed: {reason}. Its output is in {path}:"]
            last = [line for line in text.splitlines() if line.strip()][-_LINES_OF_A_FAILURE:]
            lines += [f"    {line}" for line in last]
        if self.skipped:
            lines.append("")
        return lines + [f"{job} was skipped: it needs {bad}." for job, bad in self.skipped.items()]


@contextlib.contextmanager
def _stop_requests() -> Iterator[list[str]]:
    """Yields the names of the SIGTERMs and SIGINTs so far, which stop nothing by themselves."""
    received: list[str] = []
    previous = {
        number: signal.signal(number, lambda n, _: received.append(signal.Signals(n).name))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


_say = functools.partial(print, flush=True)


class _Schedule:
    """The state of a running sweep."""

    def __init__(
        self, selected: Sequence[Job], jobs: Mapping[str, Job], slots: Sequence[Slot], workdir: str
    ):
        self._jobs, self._workdir = jobs, workdir
        self._total = len(selected)
        self.waiting = list(selected)
        self._free = list(slots)
        self._busy_elsewhere: set[str] = set()
        self._shown: dict[str, float] = {}  # job -> when its last line was printed
        self.running: list[Process] = []
        self.outcome = Outcome()

    def start_what_can(self) -> None:
        """Starts jobs, in order, while slots are free; skips what depends on a failed job."""
        lost = self.outcome.failed | self.outcome.skipped
        for job in list(self.waiting):
            if record.is_finished(job.name, self._workdir):
                self.waiting.remove(job)
                self.outcome.finished.append(job.name)
            elif bad := next((need for need in job.needs if need in lost), ""):
                self.waiting.remove(job)
                bad = self.outcome.skipped.get(bad, bad)
                self.outcome.skipped[job.name] = lost[job.name] = bad
                _say(f"{job.name}: skipped, since it needs {bad}")
            elif self._free and all(record.is_finished(n, self._workdir) for n in job.needs):
                self._start(job)

    def _start(self, job: Job) -> None:
        lock = try_lock(job.name, self._workdir)
        if lock is None:
            if job.name not in self._busy_elsewhere:
                self._busy_elsewhere.add(job.name)
                _say(f"{job.name}: waiting, since another process works in its folder")
            return
        if record.is_finished(job.name, self._workdir):  # by that other process
            lock.close()
            return
        self.waiting.remove(job)
        is_resumed = record.log_of(job.name, self._workdir).is_file()
        slot = self._free[0]
        try:
            if job.snapshot:
                record.make_snapshot(*job.snapshot, self._workdir)
            record.mark_started(job, self._jobs, self._workdir)
            self.running.append(Process(job, slot, self._workdir, lock))
        except (UserError, OSError) as error:
            lock.close()
            self._fail(job, str(error))
            return
        self._free.remove(slot)
        where = f" on {slot.describe()}" if slot.describe() else ""
        _say(f"{job.name}: {'resumed' if is_resumed else 'started'}{where}")

    def collect(self, is_stopping: bool) -> list[Job]:
        """Takes the processes that have ended; returns the jobs that are complete."""
        complete = []
        for process in list(self.running):
            ending, job = process.poll(), process.job
            if ending is None:
                continue
            if ending == "finished":
                record.mark_finished(job.name, self._workdir, process.seconds)
                self.outcome.finished.append(job.name)
                complete.append(job)
                done, took = len(self.outcome.finished), duration(process.seconds)
                _say(f"{job.name}: finished after {took} ({done} of {self._total})")
            elif is_stopping:
                _say(f"{job.name}: stopped; it will be resumed")
            elif ending == "stopped":
                self._fail(job, "another process stopped it with a signal")
            else:
                self._fail(job, ending)
            process.release()
            self.running.remove(process)
            self._free.append(process.slot)
            self._free.sort(key=lambda slot: slot.number)
        return complete

    def _fail(self, job: Job, reason: str) -> None:
        self.outcome.failed[job.name] = reason
        _say(f"{job.name}: failed ({reason})")

    def show_progress(self) -> None:
        """Prints a line for each running job, once a minute."""
        now = time.monotonic()
        for process in self.running:
            if now - self._shown.setdefault(process.job.name, now) >= _SECONDS_BETWEEN_LINES:
                self._shown[process.job.name] = now
                _say(process.describe())


def run_jobs(
    selected: Sequence[Job],
    jobs: Mapping[str, Job],
    slots: Sequence[Slot],
    workdir: str,
    on_finished: Callable[[Job], object] = lambda job: None,
) -> Outcome:
    """Runs the selected jobs until all are complete, have failed or are skipped.

    On SIGTERM or SIGINT the running processes are asked to save and stop, and no more jobs are
    started; a second signal kills them. The main thread must call it.

    Args:
      selected: the jobs to run, in order. What they need is selected too, or complete.
      jobs: all jobs by name.
      slots: parts of the machine.
      workdir: folder of the sweep.
      on_finished: called after each job that this process has completed.
    """
    schedule = _Schedule(selected, jobs, slots, workdir)
    with _stop_requests() as received:
        answered = 0
        while schedule.running or (schedule.waiting and not received):
            if len(received) > answered:
                if not answered:
                    _say(f"{received[0]}: waiting for the running jobs to save")
                for process in schedule.running:
                    process.signal(signal.SIGKILL if answered else signal.SIGTERM)
                answered = len(received)
            for job in schedule.collect(is_stopping=bool(received)):
                on_finished(job)
            if not received:
                schedule.start_what_can()
            schedule.show_progress()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    schedule.outcome.signal_name = received[0] if received else ""
    return schedule.outcome
