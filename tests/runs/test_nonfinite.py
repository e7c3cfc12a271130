"""A non-finite loss or gradient is never applied, whatever the policy."""

import numpy as np
import pytest

from bert_jax.training import feed
from bert_jax.training.listener import Listener
from bert_jax.training.train import train
from tests.resuming import train_until
from tests.runs.conftest import ONE_PHASE


@pytest.fixture
def spoil(monkeypatch):
    """Returns a function that puts NaNs into the batches of these steps.

    It returns the batches as they were before, by step.
    """
    host_batch = feed.host_batch

    def spoil_steps(*steps):
        before = {}

        def spoiled(run, phase, number):
            batch = host_batch(run, phase, number)
            if number + 1 in steps:
                before[number + 1] = batch
                nan = np.full_like(batch["next_sentence_weights"], np.nan)
                batch = batch | {"next_sentence_weights": nan}
            return batch

        monkeypatch.setattr(feed, "host_batch", spoiled)
        return before

    return spoil_steps


def assert_same_params(arrays, expected):
    for name in arrays:
        if not name.startswith("train_state['step']") and "streak" not in name:
            assert arrays[name].tobytes() == expected[name].tobytes(), name


def test_abort_keeps_batch_and_checkpoint(make_run, finished_here, spoil):
    run = make_run(checkpoint__every="4")
    before = spoil(7)
    with pytest.raises(ValueError, match="next_sentence_loss .*not finite at step 7") as raised:
        train(run.config, str(run.workdir))
    path = run.workdir / "nonfinite-step-7-process-0.npz"
    assert str(path) in str(raised.value) and "config.nonfinite=abort" in str(raised.value)
    assert (run.checkpoints / "4.sha256.json").is_file()
    assert not (run.checkpoints / "8").exists()
    assert_same_params(run.arrays(4), finished_here.arrays(4))
    with np.load(path) as dumped:
        assert set(dumped) == set(before[7])
        assert np.isnan(dumped["next_sentence_weights"]).all()
        for name in set(dumped) - {"next_sentence_weights"}:
            np.testing.assert_array_equal(dumped[name], before[7][name])


SKIP = ONE_PHASE | {"nonfinite": "skip", "nonfinite_limit": 2, "steps": 10}


def test_skip_continues_without_the_updates_and_counts_them(make_run, spoil):
    run = make_run(checkpoint__every="1", checkpoint__keep=99, **SKIP)
    spoil(6, 7)
    lines, listener = [], Listener()
    listener.line = lines.append
    train(run.config, str(run.workdir), listener=listener)
    assert_same_params(run.arrays(7), run.arrays(5))
    assert run.arrays(7)["train_state['nonfinite_streak']"] == 2
    assert run.arrays(8)["train_state['nonfinite_streak']"] == 0
    with pytest.raises(AssertionError):
        assert_same_params(run.arrays(8), run.arrays(7))
    shares = {row["step"]: row.get("skipped_share") for row in run.metrics()}
    assert (shares[4], shares[6], shares[8], shares[10]) == (None, 0.5, 0.5, None)
    out = "\n".join(lines)
    assert "not finite at step 6: not applied; its batch is in" in out
    assert "not finite at step 7: not applied; its batch is in" in out


def test_skip_aborts_after_too_many_in_a_row_also_when_resumed_among_them(make_run, spoil):
    run = make_run(checkpoint__every="4", **SKIP)
    spoil(5, 6, 7, 8)
    train_until(6, run.config, run.workdir)
    with pytest.raises(ValueError, match=r"at step 7, 3 in a row \(config.nonfinite=skip\)"):
        train(run.config, str(run.workdir))
    assert not (run.checkpoints / "8").exists()
