"""A non-finite loss or gradient is never applied, whatever the policy."""

import os
import signal

import numpy as np
import pytest

from bert_jax.training import feed, reporting
from bert_jax.training.listener import Listener
from bert_jax.training.train import train


@pytest.fixture
def spoil(monkeypatch):
    """Returns a function that puts a NaN into the batches that lead to these steps."""
    host_batch = feed.host_batch

    def spoil_steps(*steps):
        def spoiled(run, phase, number):
            batch = host_batch(run, phase, number)
            if number + 1 in steps:
                batch["next_sentence_weights"] = np.full_like(
                    batch["next_sentence_weights"], np.nan
                )
            return batch

        monkeypatch.setattr(feed, "host_batch", spoiled)

    return spoil_steps


def assert_same_params(run, step, other, other_step):
    arrays, expected = run.arrays(step), other.arrays(other_step)
    for name in arrays:
        if not name.startswith("train_state['step']") and "streak" not in name:
            assert arrays[name].tobytes() == expected[name].tobytes(), name


def test_abort_ends_at_once_and_keeps_the_last_checkpoint(make_run, finished_here, spoil):
    run = make_run(checkpoint__every="4")
    spoil(7)
    with pytest.raises(ValueError, match="next_sentence_loss .*not finite at step 7") as raised:
        train(run.config, str(run.workdir))
    path = run.workdir / "nonfinite-step-7-process-0.npz"
    assert str(path) in str(raised.value)
    assert "config.nonfinite=abort" in str(raised.value)
    assert (run.checkpoints / "4.sha256.json").is_file()
    assert not (run.checkpoints / "8").exists()
    assert_same_params(run, 4, finished_here, 4)


def test_the_saved_batch_is_the_batch_and_a_repaired_run_ends_as_if_uninterrupted(
    make_run, finished_here, monkeypatch
):
    run = make_run(checkpoint__every="4")
    host_batch, seen = feed.host_batch, {}

    def spoiled(run, phase, number):
        batch = host_batch(run, phase, number)
        if number == 5:
            seen.update({name: array.copy() for name, array in batch.items()})
            batch["next_sentence_weights"] = np.full_like(batch["next_sentence_weights"], np.inf)
        return batch

    with monkeypatch.context() as patch:
        patch.setattr(feed, "host_batch", spoiled)
        with pytest.raises(ValueError, match="at step 6, 1 in a row"):
            train(run.config, str(run.workdir))
    with np.load(run.workdir / "nonfinite-step-6-process-0.npz") as dumped:
        assert set(dumped) == set(seen)
        assert np.isinf(dumped["next_sentence_weights"]).all()
        for name in set(seen) - {"next_sentence_weights"}:
            np.testing.assert_array_equal(dumped[name], seen[name])
    train(run.config, str(run.workdir))
    assert run.metrics() == finished_here.metrics()
    assert_same_params(run, 20, finished_here, 20)


def test_skip_continues_without_the_updates_and_counts_them(make_run, spoil):
    run = make_run(
        nonfinite="skip", nonfinite_limit=2, checkpoint__every="1", checkpoint__keep=99, steps=12
    )
    spoil(6, 7)
    lines = []
    listener = Listener()
    listener.line = lines.append
    train(run.config, str(run.workdir), listener=listener)
    assert_same_params(run, 7, run, 5)
    assert run.arrays(7)["train_state['nonfinite_streak']"] == 2
    assert run.arrays(8)["train_state['nonfinite_streak']"] == 0
    with pytest.raises(AssertionError):
        assert_same_params(run, 8, run, 7)
    shares = {row["step"]: row.get("skipped_share") for row in run.metrics()}
    assert (shares[4], shares[6], shares[8], shares[10]) == (None, 0.5, 0.5, None)
    out = "\n".join(lines)
    assert "not finite at step 6: not applied; its batch is in" in out
    assert "not finite at step 7: not applied; its batch is in" in out


def test_skip_aborts_after_too_many_in_a_row_also_when_resumed_among_them(
    make_run, spoil, monkeypatch
):
    run = make_run(nonfinite="skip", nonfinite_limit=2, checkpoint__every="4", steps=12)
    spoil(5, 6, 7, 8)
    push = reporting.Reporter.push

    def push_and_stop(self, step, *arguments):
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return push(self, step, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(reporting.Reporter, "push", push_and_stop)
        assert int(train(run.config, str(run.workdir)).state.step) == 6
    with pytest.raises(ValueError, match=r"at step 7, 3 in a row \(config.nonfinite=skip\)"):
        train(run.config, str(run.workdir))
    assert not (run.checkpoints / "8").exists()


def test_the_command_reports_it_in_one_line_with_exit_code_2(make_run):
    run = make_run(optimizer__learning_rate=1e38, optimizer__warmup="0")
    code, _, err = run.finish()
    assert code == 2, err
    [line] = [line for line in err.splitlines() if line.startswith("error:")]
    assert "not finite at step" in line
    assert "Traceback" not in err
    dumped = list(run.workdir.glob("nonfinite-step-*-process-0.npz"))
    assert len(dumped) == 1 and str(dumped[0]) in line
