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
from bert_jax.training.listener import Listeners
from bert_jax.training.train import train
from tests.resuming import StopAfter, assert_same_run, assert_same_state, train_until

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


def stop_from_outside(run, finished, number):
    """Starts a run and sends it a signal; returns the step that is saved, of which it says so."""
    target = run.steps_done() + 2
    process = run.start()
    wait_for(process, lambda: run.steps_done() >= target)
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    stopped = re.search(r"Stopped by (\w+) after step (\d+), which is saved\. The same", out)
    assert stopped and stopped[1] == number.name, out
    assert (run.checkpoints / f"{stopped[2]}.sha256.json").is_file()
    assert_same_state(run.workdir, finished.workdir, int(stopped[2]))
    return int(stopped[2])


def finish(run, finished, resumed_from=None):
    code, out, err = run.finish()
    assert code == 0, err
    assert f"resumed    after step {resumed_from or ''}" in out
    names = [path.name for path in run.checkpoints.iterdir()]
    assert not [name for name in names if "damaged" in name or "tmp" in name], (names, err)
    assert_same_run(run.workdir, finished.workdir)


def test_a_run_killed_twice_and_stopped_ends_as_if_uninterrupted(make_run, finished_run):
    run, rng = make_run(), random.Random(0)
    kill_somewhere(run, rng, "save")
    kill_somewhere(run, rng, "seal")
    finish(run, finished_run, stop_from_outside(run, finished_run, signal.SIGTERM))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_ten_runs_killed_three_to_five_times(make_run, finished_run, seed):
    run, rng = make_run(checkpoint__every="2", checkpoint__keep=1 + seed % 3), random.Random(seed)
    for moment in rng.choices(("steps", "save", "save", "seal"), k=3 + seed % 3):
        kill_somewhere(run, rng, moment)
    finish(run, finished_run)


@pytest.mark.slow
def test_an_interrupt_saves_where_no_checkpoint_is_due(make_run, finished_run):
    run = make_run(checkpoint__every="0")
    finish(run, finished_run, stop_from_outside(run, finished_run, signal.SIGINT))


# ------------------------------------------------------------------ stopped


# After the first step; at a report and an evaluation; before and after the change of the phase.
@pytest.mark.parametrize(
    "steps",
    [(1, 7, 10, 11), pytest.param(range(1, 20), marks=pytest.mark.slow)],
    ids=["some", "each"],
)
def test_a_run_stopped_after_many_of_its_steps(make_run, finished_here, capfd, steps):
    run = make_run(checkpoint__keep=100)
    for step in steps:
        stop = StopAfter(step, number=signal.SIGINT if step % 2 else signal.SIGTERM)
        listener = Listeners(stop, training_listener())
        assert int(train(run.config, str(run.workdir), listener=listener).state.step) == step
        assert f"after step {step}, which is saved" in capfd.readouterr().out
        assert_same_state(run.workdir, finished_here.workdir, step)
    assert train(run.config, str(run.workdir)).is_complete
    assert_same_run(run.workdir, finished_here.workdir)


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
    "steps": 8,
}


def test_a_modern_encoder_resumes_on_a_mesh(make_run):
    whole, run = make_run(**MODERN), make_run(**MODERN)
    train(whole.config, str(whole.workdir))
    train_until(5, run.config, run.workdir)
    train(run.config, str(run.workdir))
    assert_same_run(run.workdir, whole.workdir)


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
    result = train(run.config, str(run.workdir))
    assert (int(result.state.step), result.is_complete) == (11, False)
    assert (run.checkpoints / "11.sha256.json").is_file()


# ------------------------------------------------------------------ refused, complete


def test_a_finished_run_says_so_and_changes_nothing(finished_run, capfd):
    def content():
        files = (path for path in finished_run.workdir.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = content()
    train(finished_run.config, str(finished_run.workdir), listener=training_listener())
    assert "This run is complete: all its 20 steps were done before." in capfd.readouterr().out
    assert content() == before


def test_other_settings_and_other_data_are_refused_with_their_differences(make_run, tmp_path):
    run = make_run()
    config, workdir = run.config, str(run.workdir)
    train_until(3, config, workdir)
    expected = r"other settings: optimizer.learning_rate: 0.001 -> 0.5; seed: 0 -> 1\. Choose"
    with pytest.raises(ValueError, match=expected):
        train(config.replace({"seed": 1, "optimizer.learning_rate": 0.5}), workdir)

    text, other = run.corpus.read_text(), tmp_path / "corpus.txt"
    other.write_text(text + text[: len(text) // 2])
    changes = {"data.source": f"text:{other}", "data.dir": str(tmp_path / "data")}
    with pytest.raises(ValueError, match=r"data: [0-9a-f]{12} -> [0-9a-f]{12}"):
        train(config.replace(changes), workdir)

    changes = {"seed": 1, "checkpoint.allow_changes": True}
    train_until(4, config.replace(changes), workdir)


def test_metrics_of_both_splits_are_written(finished_run):
    rows = finished_run.metrics()
    assert [row["step"] for row in rows if row["split"] == "train"] == list(range(2, 21, 2))
    assert [row["step"] for row in rows if row["split"] == "validation"] == [7, 14, 20]
    assert all(np.isfinite(row["loss"]) for row in rows)
