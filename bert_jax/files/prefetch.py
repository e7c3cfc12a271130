"""Prefetches the items of an iterator in a thread."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """An iterator whose items are computed ahead in a thread; also a context manager.

    Args:
      make_iterator: returns the iterator; called in the thread.
      depth: most items that wait for the consumer.
    """

    def __init__(self, make_iterator: Callable[[], Iterator[Item]], depth: int = 2):
        # Seconds for which the consumer has waited for items.
        self.waited = 0.0
        self._queue: queue.Queue[Callable[[], Item]] = queue.Queue(depth)
        self._ended = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make_iterator,), daemon=True)
        self._thread.start()

    def __enter__(self) -> "Prefetcher[Item]":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __iter__(self) -> "Prefetcher[Item]":
        return self

    def __next__(self) -> Item:
        """Returns the next item.

        Raises:
          StopIteration: the iterator has ended.
          Exception: raised by the iterator.
        """
        if self._ended:
            raise StopIteration
        started = time.perf_counter()
        take = self._queue.get()
        self.waited += time.perf_counter() - started
        try:
            return take()
        except BaseException:
            self._ended = True
            raise

    def close(self) -> None:
        """Stops the thread and discards items that wait."""
        self._stopped.set()
        self._thread.join()

    def _run(self, make_iterator: Callable[[], Iterator[Item]]) -> None:
        try:
            for item in make_iterator():
                if not self._put(lambda item=item: item):
                    return
            error: BaseException = StopIteration()
        except BaseException as raised:  # raised in the consumer's thread
            error = raised

        def fail() -> Item:
            raise error

        self._put(fail)

    def _put(self, take: Callable[[], Item]) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(take, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
