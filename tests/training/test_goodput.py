"""Where the time of a run goes: closed forms with a clock that only tests move, and real runs."""

import jax
import pytest

from bert_jax.files.atomic import read_json_lines
from bert_jax.scores.goodput import NAME, read_goodput
from bert_jax.training import goodput
from bert_jax.training.goodput import Goodput
from tests.resuming import train_until


class Clock:
    """A clock, in the place of `time`."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def time(self):
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(goodput, "time", clock)
    return clock


def start_run(clock: Clock, workdir, first: int, last: int, *, killed: bool = False) -> None:
    """A start: 3 s of opening; for each step, 1 s of data and 4 s; evaluations of 2 s after steps
    10, 20, ..., and checkpoints of 0.5 s after them. A kill comes 1.5 s after the last step."""
    measured = Goodput(str(workdir))
    clock.now += 3
    with measured.recording(first, writes=True):
        with measured.time("training"):
            steps = range(first + 1, last + 1)
            for step in measured.timed("data", (wait(clock, step) for step in steps)):
                clock.now += 4
                if step % 5 == 0:
                    measured.record(step)
                if step % 10 == 0:
                    with measured.time("evaluation"):
                        clock.now += 2
                    with measured.time("checkpoints"):
                        clock.now += 0.5
                    measured.record(step, sync=True)
        clock.now += 1.5
        if killed:
            raise KeyboardInterrupt


def wait(clock: Clock, step: int) -> int:
    clock.now += 1
    return step


def test_a_run_without_interruption_has_the_time_of_its_parts(clock, tmp_path):
    start_run(clock, tmp_path, 0, 20)
    found = read_goodput(tmp_path)
    assert found == {
        "goodput": round(80 / 109.5, 4),
        "wall_seconds": 109.5,
        "seconds": {
            "training": 80.0,
            "data": 20.0,
            "compilation": 0.0,
            "evaluation": 4.0,
            "checkpoints": 1.0,
            "other": 4.5,
            "lost": 0.0,
        },
        "stopped_seconds": 0.0,
        "starts": 1,
    }


def test_what_is_done_again_after_a_kill_is_lost_and_the_time_between_is_not_counted(
    clock, tmp_path
):
    """Killed at step 18, whose last line is that of step 15; resumed after step 10."""
    with pytest.raises(KeyboardInterrupt):
        start_run(clock, tmp_path, 0, 18, killed=True)
    clock.now += 1000
    start_run(clock, tmp_path, 10, 20)
    found = read_goodput(tmp_path)
    seconds = found["seconds"]
    assert (seconds["training"], seconds["data"]) == (80.0, 20.0)
    assert (seconds["evaluation"], seconds["checkpoints"], seconds["other"]) == (4.0, 1.0, 7.5)
    assert seconds["lost"] == 5 * 5  # steps 11 to 15
    assert found["stopped_seconds"] == 1000 + 3 * 5 + 1.5  # and steps 16 to 18, without a line
    assert found["wall_seconds"] == sum(seconds.values()) == 137.5
    assert (found["goodput"], found["starts"]) == (round(80 / 137.5, 4), 2)


def test_inner_compilations_are_counted_once_and_apart_from_what_is_around_them(clock, tmp_path):
    measured = Goodput(str(tmp_path))
    with measured.recording(0, writes=True), measured.time("evaluation"):
        clock.now += 2.0
        for seconds in (0.5, 1.5):  # the second has the first in it
            jax.monitoring.record_event_duration_secs("/jax/core/compile/x", seconds)
        jax.monitoring.record_event_duration_secs("/jax/other", 1.0)
        clock.now += 4.0
        jax.monitoring.record_event_duration_secs("/jax/core/compile/y", 3.0)
    jax.monitoring.record_event_duration_secs("/jax/core/compile/y", 3.0)  # not in the run
    found = read_goodput(tmp_path)["seconds"]
    assert (found["compilation"], found["evaluation"]) == (4.5, 1.5)


def test_a_resumed_run_has_its_goodput_in_results_json(new_run):
    run = new_run("classification", {"epochs": 1.0})
    train_until(2, run.config, run.workdir)
    run.train()
    found = run.results["goodput"]
    assert found == read_goodput(run.workdir) and found["starts"] == 2
    seconds = found["seconds"]
    assert 0 < found["goodput"] < 1 and seconds["lost"] < 0.01 * found["wall_seconds"]
    assert seconds["compilation"] > 0 and seconds["evaluation"] > 0 and seconds["other"] > 0
    assert sum(seconds.values()) == pytest.approx(found["wall_seconds"], abs=0.01)
    steps = [line["step"] for line in read_json_lines(run.workdir / NAME)]
    assert steps == sorted(steps) and steps[-1] == run.state.step
    before = (run.workdir / NAME).read_bytes()
    run.train()  # it is complete: nothing is added
    assert (run.workdir / NAME).read_bytes() == before
