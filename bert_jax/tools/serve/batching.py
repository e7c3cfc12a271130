"""Requests that arrive together go through the model together.

A single thread runs the model. It takes the oldest request, and with it those that wait for the
same computation, up to a number of inputs. After a group of several requests it waits a few
milliseconds for more; a client alone never waits.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from bert_jax.files.errors import UserError

# Inputs of a group; a request with more is a group by itself.
MAX_GROUP = 64
# Seconds that a group waits for more requests.
GATHER_SECONDS = 0.003


@dataclass(frozen=True, eq=False)
class Computation:
    """What a model does with inputs of one kind.

    Attributes:
      encode: example -> what `run` takes; raises UserError for one that cannot be computed.
      run: encoded examples -> a result for each, in order.
      shapes: encoded example -> (length in tokens, maximum rows) of the batches that it is in.
    """

    encode: Callable[[Any], Any]
    run: Callable[[Sequence[Any]], list[Any]]
    shapes: Callable[[Any], Iterable[tuple[int, int]]]


@dataclass(frozen=True, eq=False)
class _Job:
    computation: Computation
    examples: Sequence[Any]
    future: asyncio.Future[list[Any]]


class Batcher:
    """A queue of requests, and the thread that computes them.

    Attributes:
      max_waiting: requests that may wait for the model.
    """

    def __init__(self, max_waiting: int):
        self.max_waiting = max_waiting
        self._jobs: list[_Job] = []
        self._worker: asyncio.Task | None = None
        self._was_group = False
        self._thread = ThreadPoolExecutor(1, "model")

    def run_first(self, work: Callable[[], None]) -> Future[None]:
        """Runs something in the thread of the model, before all requests."""
        return self._thread.submit(work)

    async def run(self, computation: Computation, examples: Sequence[Any]) -> list[Any]:
        """Returns the result of each example, in order.

        Raises:
          UserError: an example cannot be computed.
          HTTPException: 503 if too many requests wait.
        """
        if len(self._jobs) >= self.max_waiting:
            message = (
                f"{self.max_waiting} requests wait already: try again in a second, or start the"
                f" server with more than --waiting={self.max_waiting}."
            )
            raise HTTPException(503, message, {"Retry-After": "1"})
        job = _Job(computation, examples, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await job.future

    async def _work(self) -> None:
        """Computes all requests, and those that arrive meanwhile."""
        loop = asyncio.get_running_loop()
        while self._jobs:
            if self._was_group and self._totals()[-1] < MAX_GROUP:
                await asyncio.sleep(GATHER_SECONDS)
            fitting = sum(total <= MAX_GROUP for total in self._totals())
            group = self._alike()[: max(1, fitting)]
            self._jobs = [job for job in self._jobs if job not in group]
            self._was_group = len(group) > 1
            outcomes = await loop.run_in_executor(self._thread, _compute, group)
            for job, outcome in zip(group, outcomes, strict=True):
                if job.future.done():  # cancelled at shutdown
                    continue
                if isinstance(outcome, Exception):
                    job.future.set_exception(outcome)
                else:
                    job.future.set_result(outcome)
        self._worker = None

    def _alike(self) -> list[_Job]:
        return [job for job in self._jobs if job.computation is self._jobs[0].computation]

    def _totals(self) -> list[int]:
        return list(itertools.accumulate(len(job.examples) for job in self._alike()))


def _compute(jobs: Sequence[_Job]) -> list[list[Any] | Exception]:
    """Returns the results or the exception of each job; errors of one do not affect others."""
    encoded = [_encode(job) for job in jobs]
    valid = [item for job in encoded if not isinstance(job, Exception) for item in job]
    try:
        results = iter(jobs[0].computation.run(valid) if valid else [])
        return [
            job if isinstance(job, Exception) else list(itertools.islice(results, len(job)))
            for job in encoded
        ]
    except Exception as error:
        return [error] if len(jobs) == 1 else [one for job in jobs for one in _compute([job])]


def _encode(job: _Job) -> list[Any] | Exception:
    encoded = []
    for number, example in enumerate(job.examples):
        try:
            encoded.append(job.computation.encode(example))
        except UserError as error:
            message, place = str(error), f"inputs[{number}]"
            has_place = place in message or len(job.examples) == 1
            return UserError(message if has_place else f"{place}: {message}")
        except Exception as error:
            return error
    return encoded
