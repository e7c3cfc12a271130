"""Processes that work off a list of tasks."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# Takes a line that says what is done.
Log = Callable[[str], None]


class Workers:
    """A pool of processes; with one process, the tasks are done in this one. Use as a context.

    Processes are spawned, never forked: the one that starts them may run threads, as jax does. A
    program that prepares data must therefore start behind `if __name__ == "__main__"`.
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
          Exception: what a task raised.
        """
        if self._pool is None:
            yield from ((number, function(*task)) for number, task in enumerate(tasks))
            return
        futures = {self._pool.submit(function, *task): i for i, task in enumerate(tasks)}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures.pop(future), future.result()
        except ValueError as error:  # raised here too, not only in another process
            raise ValueError(str(error)) from error
        except BrokenProcessPool:
            raise OSError(
                "a process died while it prepared data, perhaps for want of memory: try again with"
                " fewer processes (data.num_processes); finished parts are kept"
            ) from None


def run_stage(
    workers: Workers,
    stage: str,
    function: Callable,
    tasks: Sequence[tuple],
    num_bytes: int,
    log: Log,
) -> None:
    """Does all tasks; says how far they are every ten seconds, and at the end how fast.

    `num_bytes` of text are behind the tasks; 0: each task returns a dict with the `bytes` it read.
    """
    started = last = time.monotonic()
    done_bytes = 0.0
    for done, (_, result) in enumerate(workers.run(function, tasks), start=1):
        done_bytes += num_bytes / len(tasks) if num_bytes else result["bytes"]
        now = time.monotonic()
        if now > last + 10 or done == len(tasks):
            megabytes, seconds = done_bytes / 1e6, max(now - started, 1e-9)
            log(
                f"{stage}: {done} of {len(tasks)} parts, {megabytes:,.1f} MB of text in"
                f" {seconds:,.1f} s ({megabytes / seconds:.2f} MB/s)"
            )
            last = now


def _start_worker() -> None:
    """Leaves Ctrl-C to the process that started this one, and ends together with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
