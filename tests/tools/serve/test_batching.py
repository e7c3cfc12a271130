"""Groups of requests: which go together, in what order, and whose errors they are."""

import asyncio
import threading
import time

import pytest
from starlette.exceptions import HTTPException

from bert_jax.files.errors import UserError
from bert_jax.tools.serve import batching
from bert_jax.tools.serve.batching import Batcher, Computation
from bert_jax.tools.serve.guard import RateLimiter


class Doubling:
    """A computation that waits until it is let go, and remembers its groups."""

    def __init__(self):
        self.groups, self.go = [], threading.Event()
        self.computation = Computation(self._encode, self._run, lambda encoded: [])

    def _encode(self, example):
        if example == "wrong":
            raise UserError("it is wrong")
        return example

    def _run(self, examples):
        self.groups.append(examples)
        assert self.go.wait(60)
        if "defect" in examples:
            raise KeyError("defect")
        return [2 * example for example in examples]


@pytest.fixture
def doubling():
    return Doubling()


def answers(doubling, *requests, max_waiting=100, later=()):
    """Returns the results or exceptions of requests that arrive while a first one is computed.

    Requests are lists of examples, or pairs of a computation and such a list; those of `later`
    arrive one after the other when the others have their results.
    """

    async def run():
        batcher = Batcher(max_waiting)

        def ask(request):
            other, examples = request if isinstance(request, tuple) else (doubling, request)
            return asyncio.ensure_future(batcher.run(other.computation, examples))

        tasks = [ask([0])]
        while not doubling.groups:
            await asyncio.sleep(0.001)
        tasks += map(ask, requests)
        await asyncio.sleep(0)  # all of them wait
        doubling.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        tasks = []
        for request in later:
            tasks.append(ask(request))
            await asyncio.sleep(0.01)
        return results[1:], [await task for task in tasks]

    found, afterwards = asyncio.run(run())
    return (found, afterwards) if later else found


def test_requests_that_wait_go_together(doubling, monkeypatch):
    monkeypatch.setattr(batching, "MAX_GROUP", 5)
    requests = [[i, 10 * i] for i in range(1, 4)]
    assert answers(doubling, *requests, [4] * 6, [5]) == [
        *([2 * i, 20 * i] for i in range(1, 4)),
        [8] * 6,
        [10],
    ]
    # One that is larger than a group is a group by itself.
    assert doubling.groups == [[0], [1, 10, 2, 20], [3, 30], [4] * 6, [5]]


def test_other_computations_do_not_join_and_are_not_overtaken_forever(doubling):
    other = Doubling()
    other.go.set()
    found = answers(doubling, [1], (other, [2]), [3], (other, [4]))
    assert found == [[2], [4], [6], [8]]
    assert doubling.groups == [[0], [1, 3]] and other.groups == [[2, 4]]


def test_only_after_a_group_of_several_are_more_requests_waited_for(doubling, monkeypatch):
    monkeypatch.setattr(batching, "GATHER_SECONDS", 0.2)
    monkeypatch.setattr(batching, "MAX_GROUP", 2)
    _, found = answers(doubling, [1], [2], later=([3], [4], [5]))
    assert found == [[6], [8], [10]]
    assert doubling.groups == [[0], [1, 2], [3, 4], [5]]

    start = time.monotonic()
    monkeypatch.setattr(batching, "GATHER_SECONDS", 60.0)
    _, found = answers(doubling, later=([1], [2]))
    assert found == [[2], [4]] and time.monotonic() - start < 30


def test_an_error_is_that_of_one_request(doubling):
    requests = [1, "wrong"], ["wrong"], [2], ["defect"], [3]
    found = answers(doubling, *requests)
    assert (found[2], found[4]) == ([4], [6])
    assert (str(found[0]), str(found[1])) == ("inputs[1]: it is wrong", "it is wrong")
    assert isinstance(found[0], UserError) and isinstance(found[3], KeyError)


def test_too_many_requests_that_wait_are_refused(doubling):
    found = answers(doubling, [1], [2], [3], max_waiting=2)
    assert found[:2] == [[2], [4]]
    assert isinstance(found[2], HTTPException) and found[2].status_code == 503
    assert found[2].detail == (
        "2 requests wait already: try again in a second, or start the server with more than"
        " --waiting=2."
    )
    assert found[2].headers == {"Retry-After": "1"}


def test_a_rate_is_that_of_each_client(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limiter = RateLimiter(2.0)
    assert [limiter.wait_for("a") for _ in range(4)] == [0.0] * 4
    assert limiter.wait_for("a") == pytest.approx(0.5)
    assert limiter.wait_for("b") == 0.0
    now[0] = 0.5
    assert limiter.wait_for("a") == 0.0 and limiter.wait_for("a") > 0
    now[0] = 100.0
    assert [limiter.wait_for("a") > 0 for _ in range(5)] == [False] * 4 + [True]
    assert not any(RateLimiter(0).wait_for("a") for _ in range(1000))
    for client in range(10_100):
        limiter.wait_for(str(client))
    assert len(limiter._full) <= 10_000
