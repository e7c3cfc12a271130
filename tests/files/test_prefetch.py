"""Prefetched items: order, errors, closing."""

import threading

import pytest

from bert_jax.files.prefetch import Prefetcher


def test_prefetcher_gives_the_items_in_order_and_ends():
    with Prefetcher(lambda: iter(range(100))) as items:
        assert list(items) == list(range(100))
        assert list(items) == []
        assert items.waited >= 0


def test_prefetcher_passes_errors_on():
    def broken():
        yield 1
        raise ValueError("bad row")

    with Prefetcher(broken) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="bad row"):
            next(items)
        with pytest.raises(StopIteration):
            next(items)


def test_prefetcher_runs_ahead_no_further_than_its_depth_and_stops():
    made, ready, threads = [], threading.Event(), threading.active_count()

    def endless():
        while True:
            made.append(len(made))
            if len(made) == 4:
                ready.set()
            yield made[-1]

    with Prefetcher(endless) as items:
        assert next(items) == 0
        assert ready.wait(10)
    assert len(made) == 4  # one taken, two ready, one in hand
    assert threading.active_count() == threads
