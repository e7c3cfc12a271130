"""Two processes on one machine compute what one does; test_launch.py stops such runs."""

import re
import socket
import threading
import time

import jax
import numpy as np
import pytest

from bert_jax.devices import processes

# The pieces of the lines that Gloo prints from several threads, in any order.
GLOO = re.compile(
    r"\[Gloo\] Rank | is connected to | peer ranks\. "
    r"|Expected number of connected peer ranks is : |\d"
)


def start_together(run):
    """Starts a run of two processes with eight devices in all."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = [f"--coordinator=localhost:{port}", "--num_processes=2"]
    return [
        run.start(*flags, f"--process_id={number}", JAX_NUM_CPU_DEVICES="4") for number in range(2)
    ]


def finish(started, expected=0):
    """Waits for all, which end with the expected code; returns their standard outputs."""
    outcomes = []
    try:
        for process in started:
            outcomes.append((*process.communicate(timeout=300), process.returncode))
    finally:
        for process in started:
            process.kill()
    for _, err, code in outcomes:
        assert code == expected, err
    return [out for out, _, _ in outcomes]


def wait_for_step(run, started, step):
    while all(process.poll() is None for process in started) and run.steps_done() < step:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def together(make_run):
    run = make_run(checkpoint__keep=100)
    return run, finish(start_together(run))


def assert_same_numbers(run, other):
    """Metrics are equal up to the order of sums."""
    for row, expected in zip(run.metrics(), other.metrics(), strict=True):
        assert row.keys() == expected.keys()
        for name in row.keys() - {"split"}:
            np.testing.assert_allclose(row[name], expected[name], rtol=1e-5, err_msg=name)


def test_two_processes_train_as_one(together, finished_here):
    run, (_, second) = together
    assert not GLOO.sub("", second).strip()  # only the first prints
    assert_same_numbers(run, finished_here)


def test_a_checkpoint_of_two_processes_is_restored_in_one(together):
    run, _ = together
    code, out, err = run.finish()
    assert code == 0, err
    assert "This run is complete" in out


@pytest.mark.slow
def test_when_one_process_is_killed_the_other_does_not_hang(make_run):
    run = make_run(steps=100_000, log__every="20", checkpoint__every="0", eval__every="0")
    started = start_together(run)
    wait_for_step(run, started, 20)
    started[1].kill()
    started[1].communicate()
    began = time.monotonic()
    try:
        started[0].communicate(timeout=150)
    finally:
        started[0].kill()
    print(f"the other ended after {time.monotonic() - began:.0f} s with {started[0].returncode}")
    assert started[0].returncode not in (0, None)


class Table:
    """The common table and the barrier of two processes, of which the other one never comes."""

    def __init__(self):
        self.values, self.comes = {}, threading.Event()

    def key_value_set(self, key, value):
        self.values[key] = value

    def key_value_dir_get(self, folder):
        return [item for item in self.values.items() if item[0].startswith(f"{folder}/")]

    def wait_at_barrier(self, key, timeout_ms):
        if not self.comes.wait(timeout_ms / 1000):
            raise jax.errors.JaxRuntimeError(f"DEADLINE_EXCEEDED: {key}")


@pytest.fixture
def table(monkeypatch):
    made = Table()
    monkeypatch.setattr(processes.multihost, "get_jax_distributed_client", lambda: made)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    return made


def test_a_process_that_fails_does_not_wait_and_the_other_learns_why(table):
    try:
        raise OSError("the disk is full")
    except OSError:
        processes.wait_or_fail(key="saved", timeout_ms=60_000)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="^in process 0: the disk is full$"):
        processes.wait_or_fail(key="saved", timeout_ms=60_000)
    assert time.monotonic() - began < 10
    table.comes.set()


def test_a_process_that_waits_learns_of_a_failure(table):
    later = threading.Timer(1.0, table.key_value_set, ("bert_jax/failed/1", "in process 1: why"))
    later.start()
    with pytest.raises(RuntimeError, match="^in process 1: why$"):
        processes.wait_or_fail(key="saved", timeout_ms=60_000)
    table.comes.set()


def test_processes_that_come_go_on_and_one_that_does_not_is_an_error(table):
    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED: saved"):
        processes.wait_or_fail(key="saved", timeout_ms=100)
    table.comes.set()
    processes.wait_or_fail(key="saved", timeout_ms=60_000)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("localhost:1", 0, -1), "go together: give all three, or none"),
        (("", 2, 0), "go together: give all three, or none"),
        (("localhost:1", 2, 2), "--process_id=2 must be below --num_processes=2"),
    ],
)
def test_flags_of_processes_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        processes.start(*arguments)
