"""A pool of processes, and the progress of the jobs in it."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bert_jax.files.errors import UserError

# Takes a line of progress.
Log = Callable[[str], None]


def check_main() -> None:
    """Refuses to work in a process that imports the program which started it.

    Raises:
      UserError: the program lacks a guard.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            "Data is prepared by processes that import your script: put its code under"
            ' `if __name__ == "__main__":`, or set config.data.num_processes=1.'
        )


class Workers:
    """A pool of processes, as a context manager; with one process, jobs run in the caller.

    Processes are spawned, not forked, since the caller may run threads, as jax does. A program that
    prepares data must therefore start under `if __name__ == "__main__"`.
    """

    def __init__(self, num_processes: int):
        """Starts the processes.

        Raises:
          UserError: the program is being imported by a process that it started.
        """
        check_main()
        self._pool = None
        if num_processes > 1:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                num_processes, multiprocessing.get_context("spawn"), _start_worker
            )

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, jobs: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Yields the results of the jobs, as they are finished.

        Raises:
          OSError: a process died.
          Exception: raised by a job.
        """
        if self._pool is None:
            yield from (job() for job in jobs)
            return
        futures = [self._pool.submit(job) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        except UserError as error:  # has a traceback of this process
            raise UserError(str(error)) from error
        except BrokenProcessPool:
            raise OSError(
                "a worker process died, perhaps because the memory is full, or because the script"
                ' lacks `if __name__ == "__main__":`; fewer processes take less memory'
                " (data.num_processes); finished parts are kept"
            ) from None

    def run_stage(
        self, stage: str, jobs: Mapping[str, Callable[[], int]], num_bytes: float, log: Log
    ) -> None:
        """Runs all jobs, and logs progress every ten seconds and at the end.

        Args:
          stage: name of the stage in the log.
          jobs: the file or folder that a job writes last -> the job, which returns the bytes of
            text that it read.
          num_bytes: bytes of text of all jobs; 0: the sum of what they return.
          log: takes lines of progress.

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


def _start_worker() -> None:
    """Ignores Ctrl-C, which the parent handles, and ends this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
