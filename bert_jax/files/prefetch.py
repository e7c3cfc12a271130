"""Prefetches the items of an iterator in a thread."""

import collections
import concurrent.futures
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Maximum number of items that wait for the consumer, while one more is computed.
_DEPTH = 2


class Prefetcher(Generic[Item]):
    """An iterator that is created and read ahead in a thread; also a context manager."""

    def __init__(self, make_iterator: Callable[[], Iterator[Item]]):
        # Seconds for which the consumer has waited for items.
        self.waited = 0.0
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        iterator = self._thread.submit(make_iterator)
        self._compute = lambda: next(iterator.result())
        self._items = collections.deque(
            self._thread.submit(self._compute) for _ in range(_DEPTH + 1)
        )

    def __enter__(self) -> "Prefetcher[Item]":
        return self

    def __exit__(self, *_) -> None:
        """Stops the thread and discards the items that wait."""
        self._thread.shutdown(cancel_futures=True)

    def __iter__(self) -> "Prefetcher[Item]":
        return self

    def __next__(self) -> Item:
        """Returns the next item, or raises what the iterator raises."""
        started = time.perf_counter()
        item = self._items.popleft()
        concurrent.futures.wait([item])
        self.waited += time.perf_counter() - started
        self._items.append(self._thread.submit(self._compute))
        return item.result()
