"""A program that is killed or stopped from outside anywhere resumes exactly, bit for bit."""

import random
import re
import signal
import time

import pytest

from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.train import train
from tests.resuming import assert_same_run, assert_same_state


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
    assert process.returncode == 128 + number, err
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


def test_a_run_killed_in_a_save_and_stopped_ends_as_if_uninterrupted(make_run, finished_run):
    run, rng = make_run(), random.Random(0)
    kill_somewhere(run, rng, "save")
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


def test_a_finished_run_says_so_and_changes_nothing(finished_run, capfd):
    def content():
        files = (path for path in finished_run.workdir.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = content()
    train(finished_run.config, str(finished_run.workdir), listener=training_listener())
    assert "This run is complete: all its 20 steps were done before." in capfd.readouterr().out
    assert content() == before
