"""What a program that calls `train` gets: events, metrics as arrays, losses of its own."""

import numpy as np
import pytest

from bert_jax.files.errors import UserError
from bert_jax.tasks.losses import Sum
from bert_jax.training.listener import Listener, Listeners
from bert_jax.training.train import train
from tests.runs.conftest import ONE_PHASE


class Recorder(Listener):
    """Records the name of each event, and the metrics."""

    def __init__(self):
        self.events, self.rows = [], []

    def __getattribute__(self, name):
        if name in vars(Listener) and not name.startswith("_"):
            self.events.append(name)
        return super().__getattribute__(name)

    def metrics(self, step, split, values, speed):
        self.rows.append({"step": step, "split": split, **values})


def row_loss(outputs, batch):
    del outputs
    return Sum(0.5 * batch["next_sentence_weights"].sum(), batch["next_sentence_weights"].sum())


def test_a_program_gets_events_arrays_and_its_own_losses(make_run, capfd):
    run = make_run(**ONE_PHASE, steps=8, checkpoint__every="4")
    recorder = Recorder()
    listener = Listeners(recorder, Listener())
    capfd.readouterr()
    losses = {"row_loss": row_loss}
    result = train(run.config, str(run.workdir), listener=listener, losses=losses)
    assert capfd.readouterr().out == ""  # training itself never prints
    assert not result.stopped_by and int(result.state.step) == 8

    events = recorder.events
    assert events.index("opened") < events.index("started") < events.index("progress")
    assert events.count("progress") == 8 and events.count("saving") == 2
    assert events.count("evaluation") == 2  # steps 7 and 8
    assert events[-1] == "close"
    assert recorder.rows == run.metrics()

    history = result.metrics["train"]
    assert history["step"].tolist() == [2, 4, 6, 8]
    np.testing.assert_allclose(history["row_loss"], 0.5, rtol=1e-6)
    parts = [history[name] for name in history if name.endswith("_loss")]
    np.testing.assert_allclose(history["loss"], sum(parts), rtol=1e-6)

    with pytest.raises(UserError, match=r"losses: \['row_loss'\] -> \[\]"):
        train(run.config, str(run.workdir))
