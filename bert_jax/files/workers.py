"""A pool of processes, and the progress of a list of tasks in it."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bert_jax.files.errors import UserError

# Takes a line of progress.
Log = Callable[[str], None]


class Workers:
    """A pool of processes, as a context manager; with one process, tasks run in the caller.

    Processes are spawned, not forked, since the caller may run threads, as jax does. A program that
    prepares data must therefore start under `if __name__ == "__main__"`.
    """

    def __init__(self, num_processes: int):
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

    def run(self, function: Callable, tasks: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
        """Yields (number of the task, `function(*task)`) as the tasks are finished.

        Raises:
          OSError: a process died.
          Exception: raised by a task.
        """
        if self._pool is None:
            yield from ((number, function(*task)) for number, task in enumerate(tasks))
            return
        futures = {self._pool.submit(function, *task): i for i, task in enumerate(tasks)}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures.pop(future), future.result()
        except UserError as error:  # has a traceback of this process
            raise UserError(str(error)) from error
        except BrokenProcessPool:
            raise OSError(
                "a worker process died, perhaps because the memory is full: run again with fewer"
                " processes (data.num_processes); finished parts are kept"
            ) from None

    def run_stage(
        self, stage: str, function: Callable, tasks: dict[str, tuple], num_bytes: float, log: Log
    ) -> None:
        """Runs all tasks, and logs progress every ten seconds and at the end.

        Args:
          stage: name of the stage in the log.
          function: called with the arguments of each task.
          tasks: the file or folder that a task writes last -> its arguments.
          num_bytes: bytes of text of all tasks; 0: each returns a dict with the `bytes` it read.
          log: takes lines of progress.

        Raises:
          As `run`.
        """
        started = last = time.monotonic()
        done_bytes = 0.0
        for done, (_, result) in enumerate(self.run(function, list(tasks.values())), start=1):
            done_bytes += num_bytes / len(tasks) if num_bytes else result["bytes"]
            now = time.monotonic()
            if now > last + 10 or done == len(tasks):
                log(progress(stage, done, len(tasks), done_bytes, now - started))
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
