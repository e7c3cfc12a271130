"""A run that is stopped after any step resumes exactly, bit for bit."""

import os
import signal

import numpy as np
import pytest

from bert_jax.devices import processes
from bert_jax.devices.trees import flatten
from bert_jax.files.errors import UserError
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training import reporting
from bert_jax.training.evaluate import evaluate
from bert_jax.training.listener import Listeners
from bert_jax.training.train import train
from tests.resuming import StopAfter, assert_same_run, assert_same_state, train_until


# At an evaluation, and before the change of the phase.
@pytest.mark.parametrize(
    "steps",
    [(7, 10), pytest.param(range(1, 20), marks=pytest.mark.slow)],
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
    assert not train(run.config, str(run.workdir)).stopped_by
    assert_same_run(run.workdir, finished_here.workdir)


def test_a_teacher_of_masked_tokens_does_not_teach_next_tokens(make_run, finished_here):
    run = make_run(
        distillation__teacher=str(finished_here.workdir),
        model__next_sentence=False,
        data__segments="full_sentences",
        data__dir="",
        data__vocab=str(finished_here.workdir / "vocab.txt"),
        causal_share=0.5,
    )
    with pytest.raises(UserError, match="does not teach next tokens: set config.causal_share=0"):
        train(run.config, str(run.workdir))


@pytest.mark.slow  # tests/training/test_distillation.py has labelled runs
def test_a_distilled_run_trains_on_a_mesh_in_microbatches(make_run, finished_here):
    changes = {
        "model__hidden_size": 8,
        "model__intermediate_size": 16,
        "distillation__teacher": str(finished_here.workdir),
        "distillation__temperature": 2.0,
        "mesh__data": 2,
        "mesh__fsdp": 2,
        "mesh__tensor": 2,
        "microbatch_size": 4,
        "phases": ((16, 1.0),),
        "data__dir": "",
        "data__vocab": str(finished_here.workdir / "vocab.txt"),
        "steps": 2,
        "log__every": "1",
    }
    run = make_run(**changes)
    train(run.config, str(run.workdir))
    row = run.metrics()[0]
    parts = ("masked_lm", "masked_lm_distilled", "next_sentence", "next_sentence_distilled")
    assert row["loss"] == pytest.approx(sum(row[f"weighted_{part}_loss"] for part in parts))


def test_evaluations_and_checkpoints_have_the_mean_of_the_last_steps(make_run, finished_here):
    """Of a run whose metrics of training, and steps before those, are as without a mean."""
    run = make_run(optimizer__average_fraction=0.2)
    state = train(run.config, str(run.workdir)).state
    last, found = [finished_here.arrays(step) for step in range(17, 21)], run.arrays(20)
    expected = last[-1]
    for path in (path for path in expected if path.startswith("params")):
        mean = np.mean([arrays[path].astype(np.float64) for arrays in last], 0)
        np.testing.assert_allclose(found[path], mean, rtol=1e-5, atol=1e-7)
    for path, array in flatten(state.params).items():
        keys = "".join(f"['{name}']" for name in path.split("/"))
        np.testing.assert_allclose(array, expected[f"params{keys}"], rtol=1e-5, atol=1e-7)
    *_, evaluation = lines = run.metrics()
    *_, evaluation_of_last = others = finished_here.metrics()
    losses = [line["loss"] for line in lines[:-1]]
    assert losses == pytest.approx([line["loss"] for line in others[:-1]], rel=1e-5)
    assert evaluation["split"] == "validation" and evaluation["loss"] != evaluation_of_last["loss"]
    again = evaluate(run.config, str(run.workdir))
    assert again["loss"] == pytest.approx(evaluation["loss"], rel=1e-6)


@pytest.mark.slow
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
    assert (int(result.state.step), not result.stopped_by) == (11, False)
    assert (run.checkpoints / "11.sha256.json").is_file()


# ------------------------------------------------------------------ refused


def test_other_settings_and_other_data_are_refused_with_their_differences(make_run, tmp_path):
    run, corpus = make_run(), tmp_path / "corpus.txt"
    text, workdir = run.corpus.read_text(), str(run.workdir)
    corpus.write_text(text)
    source = {"data.source": f"text:{corpus}", "data.dir": str(tmp_path / "data")}
    config = run.config.replace(source)
    train_until(3, config, workdir)
    expected = r"other settings: optimizer.learning_rate: 0.001 -> 0.5; seed: 0 -> 1\. Choose"
    with pytest.raises(ValueError, match=expected):
        train(config.replace({"seed": 1, "optimizer.learning_rate": 0.5}), workdir)

    corpus.write_text(text + text[: len(text) // 2])
    with pytest.raises(ValueError, match=r"data: [0-9a-f]{12} -> [0-9a-f]{12}"):
        train(config.replace({"data.dir": str(tmp_path / "more")}), workdir)
    corpus.write_text(text)

    changes = {"seed": 1, "checkpoint.allow_changes": True}
    train_until(4, config.replace(changes), workdir)
