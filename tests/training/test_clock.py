"""Speed between two reports, and the time of a whole run."""

import jax
import pytest

from bert_jax.devices.chips import peak_flops
from bert_jax.training import reporting
from bert_jax.training.reporting import Clock
from bert_jax.training.run import flops_per_token
from tests.tiny import make_task


def test_an_update_has_three_times_the_flops_of_its_forward_pass():
    """The forward pass counted by hand, a multiplication and an addition each being one FLOP."""
    task = make_task()
    model = task.model
    seq, predictions = 16, 3
    hidden, inner, vocab = model.hidden_size, model.intermediate_size, model.vocab_size
    projections = 4 * 2 * seq * hidden * hidden
    attention = 2 * 2 * seq * seq * hidden
    feed_forward = 2 * 2 * seq * hidden * inner
    head = 2 * predictions * (hidden * hidden + hidden * vocab)
    forward = model.num_layers * (projections + attention + feed_forward) + head
    counted = seq * flops_per_token(task, seq)
    assert abs(counted - 3 * forward) < 1e-6 * forward


def test_the_peak_is_that_of_the_longest_matching_name_times_the_devices(monkeypatch):
    class Device:
        device_kind = "TPU v5 lite"

    monkeypatch.setattr(jax, "devices", lambda: [Device()] * 8)
    assert peak_flops() == 8 * 197e12
    Device.device_kind = "an abacus"
    assert peak_flops() is None


def test_the_clock_counts_between_two_readings():
    clock = Clock()
    clock.count(rows=2, tokens=100, flops=1.0, waited=0.0)
    clock.count(rows=6, tokens=300, flops=1.0, waited=1e9)
    speed = clock.read()
    assert speed["tokens_per_second"] == pytest.approx(200 * speed["steps_per_second"])
    assert speed["waiting_for_data"] == 1.0
    assert clock.read()["tokens_per_second"] == 0


def test_the_clock_knows_what_the_run_took_without_what_it_was_stopped_for(monkeypatch):
    now = 100.0
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now)
    clock = Clock(seconds=7.0, tokens=50)  # before the run was resumed
    clock.count(rows=1, tokens=10, flops=1.0, waited=0.0)
    now = 102.0
    assert clock.stop() == clock.stop() == {"seconds": 9.0, "tokens": 60}
    now = 200.0  # an evaluation
    speed = clock.read()
    assert (speed["seconds"], speed["tokens"], speed["tokens_per_second"]) == (9.0, 60, 5.0)
    clock.count(rows=1, tokens=10, flops=1.0, waited=0.0)
    now = 201.0
    speed = clock.read()
    assert (speed["seconds"], speed["tokens"], speed["tokens_per_second"]) == (10.0, 70, 10.0)
