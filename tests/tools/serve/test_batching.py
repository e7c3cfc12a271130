"""Groups of requests: which go together, in what order, and whose errors they are."""

import threading
import time

import pytest

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.batching import Batcher, ClosedError, FullError, InputError
from bert_jax.tools.serve.limits import RateLimiter


class Doubles:
    """A computation that may be held back, and remembers its groups."""

    def __init__(self):
        self.groups, self.go = [], threading.Event()

    def check(self, example):
        if example == "wrong":
            raise UserError("it is wrong")

    def run(self, examples):
        self.groups.append(list(examples))
        self.go.wait(60)
        if "defect" in examples:
            raise KeyError("defect")
        return [2 * example for example in examples]


@pytest.fixture
def doubles():
    return Doubles()


@pytest.fixture
def make():
    made = []

    def make(**sizes):
        made.append(Batcher(**{"waiting": 100, **sizes}))
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


def begin(batcher, doubles):
    """Submits a request that holds the thread until `doubles.go`."""
    future = batcher.submit(doubles, [0])
    while not doubles.groups:
        time.sleep(0.001)
    return future


def test_requests_that_wait_go_together(make, doubles):
    batcher = make(most=5)
    first = begin(batcher, doubles)
    futures = [batcher.submit(doubles, [i, 10 * i]) for i in range(1, 5)]
    doubles.go.set()
    assert first.result(30) == [0]
    assert [future.result(30) for future in futures] == [[2 * i, 20 * i] for i in range(1, 5)]
    assert doubles.groups == [[0], [1, 10, 2, 20], [3, 30, 4, 40]]
    assert (batcher.groups, batcher.requests) == (3, 5)


def test_a_request_larger_than_a_group_is_one_by_itself(make, doubles):
    batcher = make(most=2)
    begin(batcher, doubles)
    futures = [batcher.submit(doubles, item) for item in ([1, 2, 3], [4])]
    doubles.go.set()
    assert [future.result(30) for future in futures] == [[2, 4, 6], [8]]
    assert doubles.groups == [[0], [1, 2, 3], [4]]


def test_other_computations_do_not_join_and_are_not_overtaken_for_ever(make, doubles):
    other = Doubles()
    other.go.set()
    batcher = make()
    begin(batcher, doubles)
    futures = [batcher.submit(c, [i]) for i, c in enumerate((doubles, other, doubles, other), 1)]
    doubles.go.set()
    assert [future.result(30) for future in futures] == [[2], [4], [6], [8]]
    assert doubles.groups == [[0], [1, 3]] and other.groups == [[2, 4]]


def test_after_a_group_more_requests_are_waited_for(make, doubles):
    batcher = make(most=2, gathering=1000)
    first = begin(batcher, doubles)
    pair = [batcher.submit(doubles, [i]) for i in (1, 2)]
    doubles.go.set()
    assert [f.result(30) for f in (first, *pair)] == [[0], [2], [4]]
    one = batcher.submit(doubles, [3])
    time.sleep(0.05)
    two = batcher.submit(doubles, [4])
    assert (one.result(30), two.result(30)) == ([6], [8])
    # A request that fills a group waits for no other, and neither does the one after it.
    assert batcher.submit(doubles, [5, 50]).result(30) == [10, 100]
    assert batcher.submit(doubles, [6]).result(30) == [12]
    assert doubles.groups == [[0], [1, 2], [3, 4], [5, 50], [6]]


def test_a_request_alone_does_not_wait_for_ever(make, doubles):
    batcher = make(gathering=0.01)
    first = begin(batcher, doubles)
    pair = [batcher.submit(doubles, [i]) for i in (1, 2)]
    doubles.go.set()
    assert [f.result(30) for f in (first, *pair)] == [[0], [2], [4]]
    assert batcher.submit(doubles, [3]).result(30) == [6]


def test_wrong_inputs_are_no_error_of_others(make, doubles):
    batcher = make()
    begin(batcher, doubles)
    futures = [batcher.submit(doubles, item) for item in ([1, "wrong"], ["wrong"], [2])]
    doubles.go.set()
    with pytest.raises(InputError, match=r"^inputs\[1\]: it is wrong$"):
        futures[0].result(30)
    with pytest.raises(InputError, match="^it is wrong$"):
        futures[1].result(30)
    assert futures[2].result(30) == [4]


def test_a_defect_is_that_of_one_request(make, doubles, capsys):
    batcher = make()
    begin(batcher, doubles)
    futures = [batcher.submit(doubles, [item]) for item in (1, "defect", 2)]
    doubles.go.set()
    assert (futures[0].result(30), futures[2].result(30)) == ([2], [4])
    with pytest.raises(KeyError):
        futures[1].result(30)
    assert "KeyError" in capsys.readouterr().err


def test_too_many_wait(make, doubles):
    batcher = make(waiting=2)
    begin(batcher, doubles)
    futures = [batcher.submit(doubles, [i]) for i in (1, 2)]
    with pytest.raises(FullError):
        batcher.submit(doubles, [3])
    doubles.go.set()
    assert [future.result(30) for future in futures] == [[2], [4]]


def test_what_was_accepted_is_computed_at_the_end(make, doubles):
    batcher = make()
    futures = [begin(batcher, doubles), *(batcher.submit(doubles, [i]) for i in range(1, 20))]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher._is_closed:
        time.sleep(0.001)
    with pytest.raises(ClosedError):
        batcher.submit(doubles, [99])
    doubles.go.set()
    closing.join(30)
    assert [future.result(0) for future in futures] == [[2 * i] for i in range(20)]


# ------------------------------------------------------------------ rates


def test_a_rate_is_that_of_each_client():
    now = [0.0]
    limiter = RateLimiter(2.0, lambda: now[0])
    assert [limiter.wait_for("a") for _ in range(4)] == [0.0] * 4
    assert limiter.wait_for("a") == pytest.approx(0.5)
    assert limiter.wait_for("b") == 0.0
    now[0] = 0.5
    assert limiter.wait_for("a") == 0.0 and limiter.wait_for("a") > 0
    now[0] = 100.0
    assert [limiter.wait_for("a") for _ in range(5)][:4] == [0.0] * 4


def test_clients_are_forgotten():
    now = [0.0]
    limiter = RateLimiter(1.0, lambda: now[0])
    for client in range(30_000):
        now[0] += 1e-5
        assert limiter.wait_for(str(client)) == 0.0
    assert len(limiter._clients) <= 10_000


def test_without_a_rate():
    limiter = RateLimiter(0.0)
    assert not any(limiter.wait_for("a") for _ in range(1000))
