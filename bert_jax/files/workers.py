"""A pool of processes, and the progress of the jobs in it.

A worker is a program of its own, which receives jobs and sends their results back. It imports what
its jobs need and nothing of the program that started it: unlike the processes of `multiprocessing`,
it neither imports nor runs that program's main module, so a script needs no guard.
"""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

from bert_jax.files.errors import UserError

# Called with a line about progress.
Log = Callable[[str], None]
_SECONDS_BETWEEN_LOOKS = 0.5
# The program of a worker: where its parent finds modules, and the connection to it.
_PROGRAM = "import sys; sys.path[:] = {}; from bert_jax.files import workers; workers.work({})"


class Workers:
    """A pool of processes, as a context manager; with one process, jobs run in the caller."""

    def __init__(self, num_processes: int):
        """Starts no process before there is a job for it."""
        self._threads = None
        if num_processes > 1:
            self._threads = concurrent.futures.ThreadPoolExecutor(num_processes)
        self._started: list[Worker] = []
        self._idle: list[Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_) -> None:
        """Ends all processes; on an error or Ctrl-C also those in the middle of a job."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._end_processes()
            self._threads.shutdown()
            self._end_processes()  # one may have been starting

    def _end_processes(self) -> None:
        for worker in self._started:
            worker.end()

    def run(self, jobs: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Yields the results of the jobs as they finish.

        Raises:
          OSError: a process died.
          Exception: raised by a job.
        """
        if self._threads is None:
            yield from (job() for job in jobs)
            return
        futures = [self._threads.submit(self._run, job) for job in jobs]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()

    def _run(self, job: Callable[[], Any]) -> Any:
        """Runs a job in an idle process, which is started if there is none."""
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = Worker()
            self._started.append(worker)
        result = worker.run(job)
        self._idle.append(worker)
        return result

    def run_stage(
        self, stage: str, jobs: Mapping[str, Callable[[], int]], num_bytes: float, log: Log
    ) -> None:
        """Runs all jobs, and logs progress every ten seconds and at the end.

        Args:
          stage: name of the stage in the log.
          jobs: the file or folder that a job writes last -> the job, which returns the bytes of
            text that it read.
          num_bytes: bytes of text of all jobs; 0: the sum of what they return.
          log: called with lines about progress.

        Raises:
          As `run`.
        """
        started = last = time.monotonic()
        done_bytes = 0.0
        for done, bytes_read in enumerate(self.run(list(jobs.values())), start=1):
            done_bytes += num_bytes / len(jobs) if num_bytes else bytes_read
            now = time.monotonic()
            if now > last + 10 or done == len(jobs):
                log(progress(stage, done, len(jobs), done_bytes, now - started))
                last = now


def progress(stage: str, done: int, of: int, num_bytes: float, seconds: float) -> str:
    """Returns a line of the log about a stage; `num_bytes` of text are done, 0: unknown."""
    line = f"{stage}: {done} of {of} parts"
    if num_bytes:
        megabytes = num_bytes / 1e6
        speed = megabytes / max(seconds, 1e-9)
        return f"{line}, {megabytes:,.1f} MB of text in {seconds:,.1f} s ({speed:.2f} MB/s)"
    return f"{line} in {seconds:,.1f} s"


class Worker:
    """A process that does one job at a time."""

    def __init__(self):
        self._connection, theirs = Pipe()
        path = [os.path.abspath(folder) for folder in sys.path]  # "" is the current folder
        program = _PROGRAM.format(path, theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def run(self, job: Callable[[], Any]) -> Any:
        """Returns the result of a job, or raises what it raises.

        Raises:
          OSError: the process died.
        """
        self.start(job)
        return self.finish()

    def start(self, job: Callable[[], Any]) -> None:
        """Starts a job, whose result `finish` returns."""
        with contextlib.suppress(ConnectionError):  # `finish` reports that the process died
            self._connection.send(job)

    def finish(self) -> Any:
        """Waits for the job that was started; see `run`."""
        try:
            result, error = self._connection.recv()
        except (EOFError, ConnectionError):
            raise OSError(
                "a worker process died, perhaps because the memory is full; fewer processes take"
                " less memory (data.num_processes); finished parts are kept"
            ) from None
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Ends the process and waits for that; a second call does nothing."""
        self._process.kill()
        self._process.wait()


def work(descriptor: int) -> None:
    """Does the jobs of the parent until it ends, or ends this process; Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(ConnectionError):
        while True:
            connection.send(_answer(connection))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _answer(connection: Connection) -> tuple[Any, Exception | None]:
    """Returns (result, None) of the next job, or (None, error)."""
    try:
        return connection.recv()(), None
    except Exception as error:
        if not isinstance(error, UserError | OSError):  # a defect shows where it is
            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        return None, error
