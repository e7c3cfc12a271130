"""Runs of ELMo's task: stopped between phases, evaluated, and fine-tuned from."""

import json
from collections import Counter

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.store import parse
from bert_jax.config.task import default_config
from bert_jax.data import init_from
from bert_jax.devices.trees import flatten
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.listeners.make import evaluation_listener, training_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from configs import elmo
from tests.inference.conftest import predict_file
from tests.resuming import arrays_of, assert_same_run, metrics_of, train_in_parts
from tests.runs.conftest import write_corpus
from tests.tiny import PRNG_IMPL

STEPS = 8
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
    "task.num_samples": 20,
    "steps": STEPS,
    "phases": ((8, 0.5, 16), (12, 0.5, 8)),
    "data.num_processes": 1,
    "data.validation_share": 0.1,
    "log.every": "2",
    "eval.every": "4",
    "eval.max_batches": 3,
    "checkpoint.every": "1",
    "checkpoint.keep": 100,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    write_corpus(folder / "corpus.txt", documents=120)
    source = {"data.source": f"text:{folder / 'corpus.txt'}", "data.dir": str(folder / "data")}
    return parse(elmo.get_config("small")).replace(VALUES | source)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """The folder of an uninterrupted run on 8 devices."""
    workdir = tmp_path_factory.mktemp("run")
    result = train(config, str(workdir))
    carried = result.state.carry["forward"][0].cell
    assert carried.shape == (8, 16) and len(carried.addressable_shards) == 8
    return workdir


def test_a_run_stopped_in_and_between_phases_resumes_bit_for_bit(config, finished, tmp_path):
    train_in_parts(config, tmp_path, STEPS // 2, STEPS // 2 + 2)
    assert_same_run(tmp_path, finished)


def test_a_checkpoint_has_the_states_of_its_phase(finished):
    for step, rows in (4, 16), (5, 8), (8, 8):
        arrays = arrays_of(finished / "checkpoints" / str(step))
        carry = next(array for name, array in arrays.items() if "carry" in name)
        assert len(carry) == rows and np.abs(carry).max() > 0


def test_the_loss_falls_and_the_evaluation_of_the_folder_is_that_of_training(finished, capfd):
    first, last = (row for row in metrics_of(finished) if row["split"] == "validation")
    assert last["loss"] < first["loss"]
    values = evaluate(store.load(str(finished)), str(finished), listener=evaluation_listener())
    assert values == {name: last[name] for name in values}
    assert values["perplexity"] == pytest.approx(np.exp(values["loss"]))
    assert "unigram entropy" in capfd.readouterr().out


def test_texts_get_probabilities(finished, tmp_path):
    (tmp_path / "texts.txt").write_text("abc defg\n\nnew-words also\n")
    output, workdir = tmp_path / "out.jsonl", str(finished)
    assert predict_file(store.load(workdir), workdir, str(tmp_path / "texts.txt"), str(output)) == 3
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [2, 0, 4]
    for row in rows:
        assert row["forward_log_probability"] < 0 and row["backward_log_probability"] < 0
        assert row["perplexity"] > 1


def test_a_tagger_reads_the_mix_of_all_layers_of_the_frozen_encoder(finished, tmp_path, capfd):
    """ELMo's defaults for fine-tuning; also words that training never saw."""
    workdir, data = str(tmp_path / "tagger"), tmp_path / "train.conll"
    tags = ["B-PER" if i % 7 == 3 else "O" for i in range(60)]
    lines = [f"w{i % 7} {tag}\n" + "\n" * (i % 5 == 4) for i, tag in enumerate(tags)]
    data.write_text("".join(lines))
    changes = {
        "init_from": str(finished),
        "prng_impl": PRNG_IMPL,
        "steps": 3,
        "epochs": 0.0,
        "max_length": 16,
        "data.train": str(data),
        "data.eval": str(data),
        "data.bucket_lengths": (16,),
        "data.batch_by": "rows",
        "task.head": "linear",  # a BiLSTM would take longest to compile
        "global_batch_size": 8,
        "optimizer.warmup": "0",
        "checkpoint.use": "newest",
    }
    config = default_config("tagging").replace(changes)
    config = init_from.resolve(config.to_dict(), changes.keys(), workdir)
    assert (config.model.name, config.optimizer.frozen_layers) == ("elmo", -1)
    params = flatten(train(config, workdir, listener=training_listener()).state.params)
    assert "without softmax" in capfd.readouterr().out
    source = arrays_of(finished / "checkpoints" / str(STEPS))
    kernel = source["params['elmo']['forward_0']['kernel']"]
    np.testing.assert_array_equal(params["elmo/forward_0/kernel"], kernel)
    assert params["scalar_mix/weights"].shape == (2,) and params["scalar_mix/weights"].any()

    model = load_model(workdir)
    predictor = TaskPredictor(Predictor(model))
    (tmp_path / "new.conll").write_text("Unseen\nwords-here\n.\n")
    examples = list(predictor.task.read(str(tmp_path / "new.conll"), Counter(), labelled=False))
    ((prediction,),) = predictor.predict(examples)
    assert prediction["words"] == ["Unseen", "words-here", "."] and len(prediction["tags"]) == 3
    assert {"Unseen", "words-here"} <= set(model.tokenizer.pieces)
