"""Requests that arrive together go through the model together.

One thread has the model. It takes the oldest request, and with it all that wait for the same
computation, up to a number of inputs. If the last group had several requests, it waits a few
milliseconds for more; a client alone never waits.
"""

import collections
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from bert_jax.files.errors import UserError

# Inputs that are computed together, and seconds that a group waits for more requests.
MOST_INPUTS = 64
GATHERING = 0.003


class Computation(Protocol):
    """What a model does with inputs of one kind."""

    def check(self, example: Any) -> None:
        """Raises UserError for an input that cannot be computed."""
        ...

    def run(self, examples: Sequence[Any]) -> list[Any]:
        """Returns a result for each input, in order."""
        ...


class InputError(Exception):
    """An input that the model cannot take; its text says why."""


class FullError(Exception):
    """As many requests wait as are allowed."""


class ClosedError(Exception):
    """The server is shutting down."""


@dataclass(frozen=True)
class _Job:
    computation: Computation
    examples: Sequence[Any]
    future: "Future[list[Any]]" = field(default_factory=Future)


class Batcher:
    """A queue of requests and the thread that computes them.

    Attributes:
      groups: how many groups of requests have been computed.
      requests: how many requests those had.
    """

    def __init__(self, waiting: int, most: int = MOST_INPUTS, gathering: float = GATHERING):
        """Starts the thread.

        Args:
          waiting: requests that may wait.
          most: inputs of a group; a request with more is a group by itself.
          gathering: seconds that a group waits for more requests.
        """
        self.groups = self.requests = 0
        self._waiting, self._most, self._gathering = waiting, most, gathering
        self._jobs: collections.deque[_Job] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def submit(self, computation: Computation, examples: Sequence[Any]) -> "Future[list[Any]]":
        """Returns what will have the results, or an InputError.

        Raises:
          FullError, ClosedError: the request is not accepted.
        """
        job = _Job(computation, examples)
        with self._changed:
            if self._is_closed:
                raise ClosedError
            if len(self._jobs) >= self._waiting:
                raise FullError
            self._jobs.append(job)
            self._changed.notify_all()
        return job.future

    def close(self) -> None:
        """Computes what was accepted, accepts nothing more, and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        was_group = False
        while group := self._next_group(was_group):
            was_group = len(group) > 1
            self.groups += 1
            self.requests += len(group)
            _answer(group)

    def _next_group(self, waits: bool) -> list[_Job]:
        """Returns jobs of one computation, the oldest first; [] once all is done and closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            if not self._jobs:
                return []
            computation = self._jobs[0].computation
            end = time.monotonic() + self._gathering
            while waits and not self._is_closed and self._count(computation) < self._most:
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    break
            return self._take(computation)

    def _count(self, computation: Computation) -> int:
        return sum(len(job.examples) for job in self._jobs if job.computation is computation)

    def _take(self, computation: Computation) -> list[_Job]:
        group, rest, room = [], collections.deque(), self._most
        for job in self._jobs:
            fits = len(job.examples) <= room or not group
            if job.computation is computation and fits:
                group.append(job)
                room -= len(job.examples)
            else:
                # What came later must not overtake it.
                room = 0 if job.computation is computation else room
                rest.append(job)
        self._jobs = rest
        return group


def _answer(group: Sequence[_Job]) -> None:
    """Sets the futures of jobs of one computation; the wrong input of one is no other's error."""
    checked = [job for job in group if _check(job)]
    if not checked:
        return
    try:
        results = iter(_run(checked[0].computation, [e for job in checked for e in job.examples]))
        for job in checked:
            job.future.set_result([next(results) for _ in job.examples])
    except Exception as error:
        if len(checked) == 1:
            traceback.print_exc()
            checked[0].future.set_exception(error)
            return
        for job in checked:
            if not job.future.done():
                _answer([job])


def _check(job: _Job) -> bool:
    for number, example in enumerate(job.examples):
        try:
            job.computation.check(example)
        except UserError as error:
            place = f"inputs[{number}]: " if len(job.examples) > 1 else ""
            job.future.set_exception(InputError(place + str(error)))
            return False
        except Exception as error:
            traceback.print_exc()
            job.future.set_exception(error)
            return False
    return True


def _run(computation: Computation, examples: Sequence[Any]) -> list[Any]:
    results = computation.run(examples)
    if len(results) != len(examples):
        raise RuntimeError(f"{len(examples)} inputs have {len(results)} results.")
    return results
