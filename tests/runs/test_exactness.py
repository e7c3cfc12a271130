"""A run that is stopped or killed anywhere resumes exactly, bit for bit."""

import os
import random
import re
import signal
import time

import numpy as np
import pytest

from bert_jax.devices import processes
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training import reporting
from bert_jax.training.train import train


def assert_same_run(run, other, step=20):
    """Metrics, parameters, optimizer state and counters, bit for bit."""
    assert run.metrics() == other.metrics()
    assert_same_state(run, other, step)


def assert_same_state(run, other, step):
    arrays, expected = run.arrays(step), other.arrays(step)
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype, name
        assert array.tobytes() == expected[name].tobytes(), f"{name} at step {step}"
    assert run.totals(step) == other.totals(step)


# ------------------------------------------------------------------ killed


def wait_for(process, is_there):
    while process.poll() is None and not is_there():
        time.sleep(0.001)


def kill_somewhere(run, rng, moment):
    """Starts a run and kills it: after a number of steps, in a save, or between save and seal."""
    present = set(run.checkpoints.iterdir()) if run.checkpoints.is_dir() else set()
    target = run.steps_done() + rng.randint(1, 3)

    def new_folders():
        names = run.checkpoints.iterdir() if run.checkpoints.is_dir() else ()
        return [path.name for path in names if path not in present]

    process = run.start()
    is_there = {
        "steps": lambda: run.steps_done() >= target,
        "save": lambda: any("tmp" in name for name in new_folders()),
        "seal": lambda: any(name.isdecimal() for name in new_folders()),
    }[moment]
    wait_for(process, is_there)
    time.sleep(rng.choice((0, 0, 0.01)))
    process.kill()
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err


def run_with_kills(run, rng, moments):
    for moment in moments:
        kill_somewhere(run, rng, moment)
    code, out, err = run.finish()
    assert code == 0, err
    names = [path.name for path in run.checkpoints.iterdir()]
    assert not [name for name in names if "damaged" in name or "tmp" in name], (names, err)
    return run


def test_a_run_killed_three_times_ends_as_if_uninterrupted(make_run, finished_run):
    run = run_with_kills(make_run(), random.Random(0), ("save", "seal", "steps"))
    assert_same_run(run, finished_run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_ten_runs_killed_three_to_five_times(make_run, finished_run, seed):
    run = make_run(checkpoint__every="2", checkpoint__keep=1 + seed % 3)
    rng = random.Random(seed)
    moments = rng.choices(("steps", "save", "save", "seal"), k=3 + seed % 3)
    assert_same_run(run_with_kills(run, rng, moments), finished_run)


# ------------------------------------------------------------------ stopped


def stop_after(monkeypatch, step, number=signal.SIGTERM):
    """The signal comes while the step that makes the state's step `step` is under way."""
    push = reporting.Reporter.push

    def push_and_signal(self, now, *arguments):
        if now == step:
            os.kill(os.getpid(), number)
        return push(self, now, *arguments)

    monkeypatch.setattr(reporting.Reporter, "push", push_and_signal)


# The first step; at a report (2), a checkpoint (3), an evaluation (7), before and after the change
# of the phase (10), and the last one.
SOME_STEPS = (1, 2, 3, 7, 10, 11, 19)


@pytest.mark.parametrize(
    "steps", [SOME_STEPS, pytest.param(range(1, 20), marks=pytest.mark.slow)], ids=["some", "each"]
)
def test_a_run_stopped_after_many_of_its_steps(make_run, finished_here, monkeypatch, capfd, steps):
    run = make_run(checkpoint__keep=100)
    for step in steps:
        with monkeypatch.context() as patch:
            stop_after(patch, step, signal.SIGINT if step % 2 else signal.SIGTERM)
            assert (
                int(train(run.config, str(run.workdir), listener=training_listener()).state.step)
                == step
            )
        assert f"after step {step}, which is saved" in capfd.readouterr().out
        assert_same_state(run, finished_here, step)
    result = train(run.config, str(run.workdir), listener=training_listener())
    state, is_complete = result.state, result.is_complete
    assert is_complete and int(state.step) == 20
    assert_same_run(run, finished_here)


# All parts of modern encoders at once, an optimizer with two kinds of states, all axes of the mesh.
MODERN = {
    "model__num_layers": 2,
    "model__norm_place": "pre",
    "model__first_layer_norm": False,
    "model__norm": "rms_norm",
    "model__query_key_norm": True,
    "model__biases": False,
    "model__positions": "rotary",
    "model__attention_pattern": "window",
    "model__attention_window": 4,
    "model__global_every": 2,
    "model__feed_forward": "gated",
    "model__type_vocab_size": 0,
    "model__next_sentence": False,
    "data__masked_lm_prob": 0.3,
    "optimizer__name": "muon",
    "optimizer__schedule": "trapezoid",
    "mesh__data": 2,
    "mesh__fsdp": 2,
    "mesh__tensor": 2,
    "phases": ((32, 1.0),),
    "data__dir": "",  # of other sequence lengths than those of the other runs
}


def test_a_modern_encoder_resumes_on_a_mesh(make_run, monkeypatch):
    whole, run = make_run(**MODERN), make_run(**MODERN)
    train(whole.config, str(whole.workdir), listener=training_listener())
    with monkeypatch.context() as patch:
        stop_after(patch, 13)
        assert (
            int(train(run.config, str(run.workdir), listener=training_listener()).state.step) == 13
        )
    train(run.config, str(run.workdir), listener=training_listener())
    assert_same_run(run, whole)


def test_a_signal_between_two_phases_stops_the_run_after_a_step_that_is_saved(
    make_run, monkeypatch
):
    drain = reporting.Reporter.drain

    def drain_and_signal(self, *arguments):
        drain(self, *arguments)
        if not arguments and self._phase.last_step == 10 and stopped.calls == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    class stopped(processes.StopRequest):
        calls = 0

        def is_set(self, step):
            stopped.calls = step
            return super().is_set(step)

    monkeypatch.setattr(processes, "StopRequest", stopped)
    monkeypatch.setattr(reporting.Reporter, "drain", drain_and_signal)
    run = make_run(log__every="0", eval__every="0", checkpoint__every="0")
    result = train(run.config, str(run.workdir), listener=training_listener())
    state, is_complete = result.state, result.is_complete
    assert not is_complete
    assert int(state.step) == 11
    assert (run.checkpoints / "11.sha256.json").is_file()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_from_outside_saves_and_says_how_to_resume(make_run, finished_run, number):
    run = make_run(checkpoint__every="0")
    process = run.start()
    wait_for(process, lambda: run.steps_done() >= 4)
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    stopped = re.search(r"Stopped by (\w+) after step (\d+), which is saved\. The same", out)
    assert stopped, out
    assert stopped[1] == number.name
    assert (run.checkpoints / f"{stopped[2]}.sha256.json").is_file()
    assert_same_state(run, finished_run, int(stopped[2]))
    code, out, err = run.finish()
    assert code == 0, err
    assert f"resumed    after step {stopped[2]} of 20" in out
    assert_same_run(run, finished_run)


# ------------------------------------------------------------------ refused, complete


def test_a_finished_run_says_so_and_changes_nothing(make_run, finished_run, capfd):
    def content():
        files = (path for path in finished_run.workdir.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = content()
    train(finished_run.config, str(finished_run.workdir), listener=training_listener())
    assert "This run is complete: all its 20 steps were done before." in capfd.readouterr().out
    assert content() == before


def test_other_settings_are_refused_with_their_differences(make_run, monkeypatch):
    run = make_run()
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        train(run.config, str(run.workdir), listener=training_listener())
    run.values |= {"seed": 1, "optimizer.learning_rate": 0.5}
    expected = r"other settings: optimizer.learning_rate: 0.001 -> 0.5; seed: 0 -> 1\. Choose"
    with pytest.raises(ValueError, match=expected):
        train(run.config, str(run.workdir), listener=training_listener())
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        run.values |= {"optimizer.learning_rate": 1e-3, "checkpoint.allow_changes": True}
        assert (
            int(train(run.config, str(run.workdir), listener=training_listener()).state.step) == 4
        )


def test_other_data_are_refused(make_run, monkeypatch, tmp_path):
    run = make_run()
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        train(run.config, str(run.workdir), listener=training_listener())
    text = (run.corpus).read_text()
    other = tmp_path / "corpus.txt"
    other.write_text(text + text[: len(text) // 2])
    run.values |= {"data.source": f"text:{other}", "data.dir": str(tmp_path / "data")}
    with pytest.raises(ValueError, match=r"data: [0-9a-f]{12} -> [0-9a-f]{12}"):
        train(run.config, str(run.workdir), listener=training_listener())


def test_metrics_of_both_splits_are_written(finished_run):
    rows = finished_run.metrics()
    assert [row["step"] for row in rows if row["split"] == "train"] == list(range(2, 21, 2))
    assert [row["step"] for row in rows if row["split"] == "validation"] == [7, 14, 20]
    assert all(np.isfinite(row["loss"]) for row in rows)
