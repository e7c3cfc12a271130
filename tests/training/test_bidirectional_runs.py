"""A run of ELMo's task: killed, stopped, sharded, evaluated, and fine-tuned from."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.store import parse
from bert_jax.data import init_from
from bert_jax.tools.listeners.make import evaluation_listener, training_listener
from bert_jax.tools.outputs.predictions import predict
from bert_jax.training import reporting
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from configs import elmo
from tests.runs.conftest import REPOSITORY, Run, outcome, write_corpus
from tests.runs.test_exactness import assert_same_state, wait_for
from tests.tiny import PRNG_IMPL

STEPS = 12
# Two phases, of other lengths and numbers of streams: states begin anew between them.
VALUES = {
    "prng_impl": PRNG_IMPL,
    "model.vocab_size": 150,
    "model.hidden_size": 16,
    "model.cell_size": 16,
    "model.num_layers": 1,
    "model.character_size": 4,
    "model.filters": ((2, 12),),
    "model.highway_layers": 0,
    "head.num_samples": 20,
    "steps": STEPS,
    "phases": ((8, 0.5, 16), (12, 0.5, 8)),
    "data.num_processes": 1,
    "data.validation_share": 0.1,
    "log.every": "2",
    "eval.every": "5",
    "eval.max_batches": 3,
    "checkpoint.every": "1",
    "checkpoint.keep": 100,
}


@dataclasses.dataclass
class ElmoRun(Run):
    """A run of configs/elmo.py:small, made smaller."""

    @property
    def config(self):
        config = parse(elmo.get_config("small"))
        config = config.replace(self.values)
        return config

    def start(self, *flags: str, mode: str = "train", **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "bert_jax.main", f"--mode={mode}"]
        command += [f"--workdir={self.workdir}", "--config=configs/elmo.py:small"]
        command += [f"--config.{name}={value}" for name, value in self.values.items()]
        return subprocess.Popen(
            [*command, *flags],
            cwd=REPOSITORY,
            env=os.environ | environment,  # compiles as this process does
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture(scope="module")
def new_run(tmp_path_factory):
    """Returns a function () -> run that has not begun, on data that all runs share."""
    shared = tmp_path_factory.mktemp("elmo")
    write_corpus(shared / "corpus.txt", documents=120)
    source = {"data.source": f"text:{shared / 'corpus.txt'}", "data.dir": str(shared / "data")}
    return lambda **changes: ElmoRun(tmp_path_factory.mktemp("run"), VALUES | source | changes)


@pytest.fixture(scope="module")
def finished(new_run):
    """An uninterrupted run on 8 devices."""
    run = new_run()
    result = train(run.config, str(run.workdir), listener=training_listener())
    state, is_complete = result.state, result.is_complete
    assert is_complete
    carried = state.carry["forward"][0].cell
    assert carried.shape == (8, 16) and len(carried.addressable_shards) == 8
    return run


def test_a_killed_run_ends_as_if_uninterrupted(new_run, finished):
    run = new_run()
    process = run.start()
    wait_for(process, lambda: run.steps_done() >= 4)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    code, out, err = outcome(run.start())
    assert code == 0, err
    assert "resumed    after step" in out
    assert run.metrics() == finished.metrics()
    for step in (STEPS // 2, STEPS):
        assert_same_state(run, finished, step)


@pytest.mark.slow
def test_a_run_stopped_between_phases_resumes_exactly(new_run, finished, monkeypatch):
    run, stop_at = new_run(), STEPS // 2
    push = reporting.Reporter.push

    def push_and_signal(self, now, *arguments):
        if now == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return push(self, now, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(reporting.Reporter, "push", push_and_signal)
        assert (
            int(train(run.config, str(run.workdir), listener=training_listener()).state.step)
            == stop_at
        )
    train(run.config, str(run.workdir), listener=training_listener())
    assert run.metrics() == finished.metrics()
    assert_same_state(run, finished, STEPS)


def test_a_checkpoint_has_the_states_of_its_phase(finished):
    arrays = {step: finished.arrays(step) for step in (6, 7, 12)}
    found = {step: next(x for n, x in a.items() if "carry" in n) for step, a in arrays.items()}
    assert {step: len(array) for step, array in found.items()} == {6: 16, 7: 8, 12: 8}
    assert all(np.abs(array).max() > 0 for array in found.values())


def test_the_loss_falls_and_the_evaluation_of_the_folder_is_that_of_training(finished, capfd):
    rows = finished.metrics()
    losses = [row["loss"] for row in rows if row["split"] == "validation"]
    assert len(losses) == 3 and losses[-1] < losses[0]
    config = store.load(str(finished.workdir))
    values = evaluate(config, str(finished.workdir), listener=evaluation_listener())
    last = [row for row in rows if row["split"] == "validation"][-1]
    assert values == {name: last[name] for name in values}
    assert values["perplexity"] == pytest.approx(np.exp(values["loss"]))
    assert "unigram entropy" in capfd.readouterr().out


def test_texts_get_probabilities(finished, tmp_path):
    (tmp_path / "texts.txt").write_text("abc defg\n\nnew-words also\n")
    output = tmp_path / "out.jsonl"
    config = store.load(str(finished.workdir))
    assert predict(config, str(finished.workdir), str(tmp_path / "texts.txt"), str(output)) == 3
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [2, 0, 4]
    for row in rows:
        assert row["forward_log_probability"] < 0 and row["backward_log_probability"] < 0
        assert row["perplexity"] > 1


def test_a_tagger_reads_the_mix_of_all_layers_of_the_frozen_run(finished, tmp_path, capfd):
    from configs import tagging

    lines = [
        f"w{i % 7} {'B-PER' if i % 7 == 3 else 'O'}\n" + "\n" * (i % 5 == 4) for i in range(60)
    ]
    (tmp_path / "train.conll").write_text("".join(lines))
    config = parse(tagging.get_config())
    values = {
        **{"init_from": str(finished.workdir), "prng_impl": PRNG_IMPL, "steps": 6, "epochs": 0.0},
        **{"data.train": str(tmp_path / "train.conll"), "max_length": 16},
        **{"data.eval": str(tmp_path / "train.conll"), "data.bucket_lengths": (16,)},
        **{"head.layers": "scalar_mix", "optimizer.frozen_layers": -1, "global_batch_size": 8},
        **{"optimizer.name": "adamw", "optimizer.learning_rate": 0.05},
        **{"head.lstm_size": 8, "head.lstm_layers": 1, "data.batch_by": "rows"},
        **{"optimizer.schedule": "constant", "optimizer.warmup": "0"},
    }
    config = config.replace(values)
    config = init_from.resolve(config.to_dict(), values.keys(), str(tmp_path / "tagger"))
    result = train(config, str(tmp_path / "tagger"), listener=training_listener())
    state, is_complete = result.state, result.is_complete
    assert is_complete and "without softmax" in capfd.readouterr().out
    source = finished.arrays(STEPS)
    kernel = state.params["elmo"]["forward_0"]["kernel"]
    np.testing.assert_array_equal(kernel, source["params['elmo']['forward_0']['kernel']"])
    assert any("scalar_mix" in str(path) for path, _ in _leaves(state.params))


def _leaves(params):
    import jax

    return jax.tree_util.tree_flatten_with_path(params)[0]
