"""The step benchmark: what it computes of its times, and that all programs run."""

import numpy as np
import pytest

from benchmarks import command, side_by_side, step


def test_groups_of_steps_take_half_a_second_and_the_first_step_is_left_out(monkeypatch):
    clock, events, durations = 0.0, [], iter((1.0, *[0.2] * 100))
    monkeypatch.setattr(side_by_side.time, "perf_counter", lambda: clock)

    def run_step():
        nonlocal clock
        clock += next(durations)
        events.append("step")

    seconds = side_by_side.time_steps(run_step, lambda: events.append("wait"))
    waits = [i for i, event in enumerate(events) if event == "wait"]
    assert np.diff([-1, *waits]).tolist() == [2, 2, 4, 4, 4]  # half a second has three steps
    np.testing.assert_allclose(seconds, 0.2)


def test_the_table_has_speeds_and_their_ratio_to_ours():
    properties = {"flops": 8e9, "peak_flops": 1e12, "device": "2 x H200 (gpu)"}
    seconds = {step.OURS: 0.1, step.THEIRS: 0.25}
    head, header, ours, theirs = step.lines(seconds, properties, tokens=512)
    assert head == "2 x H200 (gpu), 8.0 GFLOP a step"
    assert header.split() == "ms a step tokens/s x ours GFLOP/s MFU".split()
    assert ours.split() == ["bert_jax", "100.0", "5,120", "1.00", "80", "8.0%"]
    assert theirs.split() == ["transformers", "250.0", "2,048", "0.40", "32", "3.2%"]


@pytest.mark.slow
def test_all_of_it_on_the_smallest_model(capfd):
    command.main("step", ["--models=tiny", "--rounds=1", "--batch_size=8"])
    lines = capfd.readouterr().out.splitlines()
    assert any(line.startswith("bert_jax ") for line in lines)
    assert any(line.startswith("transformers ") for line in lines) == side_by_side.can_compare()
