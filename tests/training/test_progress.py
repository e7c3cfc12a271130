"""What a run prints: lines, tables, the bar, and the arithmetic of speed."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax.devices import sharding
from bert_jax.training import progress
from bert_jax.training.state import parameter_rules
from bert_jax.training.step import flops_per_token
from tests.tiny import make_task

SPEED = {
    "steps_per_second": 2.0,
    "tokens_per_second": 8192.0,
    "examples_per_second": 64.0,
    "waiting_for_data": 0.02,
}
VALUES = {
    "loss": 3.25,
    "masked_lm_loss": 2.75,
    "masked_lm_accuracy": 0.412,
    "next_sentence_accuracy": 0.9,
    "learning_rate": 1e-4,
}


def test_a_report_is_one_line():
    line = progress.progress_line(40, 1000, VALUES, SPEED | {"mfu": 0.45})
    assert line == (
        "step   40/1000  loss 3.25  MLM loss 2.75  MLM accuracy 41.2%  NSP accuracy 90.0%"
        "  lr 1.00e-04  8,192 tokens/s  64.0 examples/s  data wait 2%  MFU 45.0%  ETA 8:00"
    )


def test_unknown_values_are_left_out():
    line = progress.progress_line(1000, 1000, VALUES, SPEED)
    assert "MFU" not in line
    assert "ETA" not in line


def test_durations_above_an_hour_have_hours():
    assert progress.progress_line(0, 7200, {}, SPEED).endswith("ETA 1:00:00")


def test_the_table_has_a_row_for_each_parameter_and_their_sum():
    mesh = sharding.make_mesh(data=4, fsdp=1, tensor=2)
    params = {
        "intermediate": {"kernel": jnp.zeros((2, 6)), "bias": jnp.zeros(6)},
        "layer_norm": {"scale": jnp.ones(1200)},
    }
    params = jax.device_put(
        params, sharding.parameter_shardings(mesh, parameter_rules(make_task()), params)
    )
    header, *rows, total = progress.parameter_table(params)
    assert header.split() == ["parameter", "shape", "dtype", "split", "over", "numbers"]
    assert rows[0].split() == ["intermediate/bias", "6", "float32", "('tensor',)", "6"]
    assert rows[1].split()[:2] == ["intermediate/kernel", "2x6"]
    assert rows[2].split()[-1] == "1,200"
    assert len({len(row) for row in [header, *rows]}) == 1  # columns stand under one another
    assert total == "1,218 parameters"


def test_the_banner_names_devices_and_mesh():
    text = progress.describe_devices(sharding.make_mesh(data=2, fsdp=2, tensor=2))
    assert text == "8 x cpu (cpu), 1 process, mesh data=2 x fsdp=2 x tensor=2"


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
    assert progress.peak_flops() == 8 * 197e12
    Device.device_kind = "an abacus"
    assert progress.peak_flops() is None


def test_the_clock_counts_between_two_readings():
    clock = progress.Clock()
    clock.count(rows=2, tokens=100, flops=1.0, waited=0.0)
    clock.count(rows=6, tokens=300, flops=1.0, waited=1e9)
    speed = clock.read()
    assert speed["tokens_per_second"] == pytest.approx(200 * speed["steps_per_second"])
    assert speed["waiting_for_data"] == 1.0
    assert clock.read()["tokens_per_second"] == 0


def test_the_clock_knows_what_the_run_took_without_what_it_was_stopped_for(monkeypatch):
    now = 100.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    clock = progress.Clock(seconds=7.0, tokens=50)  # before the run was resumed
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


def test_without_a_terminal_there_is_no_bar(capsys):
    screen = progress.Screen(10)
    screen.tick(3)
    screen.line("a line")
    progress.Screen(10, enabled=False).line("of another process")
    assert capsys.readouterr().out == "a line\n"


def test_on_a_terminal_a_bar_shows_the_progress(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    screen = progress.Screen(10)
    screen.tick(5)
    screen.line("a line")
    bar, line = capsys.readouterr().out.split("\r\x1b[K")[1:]
    assert bar == f"[{'#' * 20}{'-' * 20}] 5/10"
    assert line == "a line\n"
