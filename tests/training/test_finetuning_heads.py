"""Causal models and GPT, from other runs and by themselves."""

import random

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.encoders import GptConfig
from bert_jax.config.task import default_config
from bert_jax.devices.trees import flatten
from tests import tiny
from tests.inference.conftest import predict_file
from tests.training.conftest import Run
from tests.training.labelled_files import VOCABULARY, write_choices


@pytest.fixture
def make_source(make_workdir):
    """Returns a function (**fields) -> workdir of a causal language model without training."""

    def make(**changes):
        sizes = {f"model__{name}": size for name, size in tiny.SIZES.items()}
        sizes |= {"model__vocab_size": len(VOCABULARY), "model__num_layers": 1}
        vocabulary = "\n".join(VOCABULARY) + "\n"
        return make_workdir(vocabulary, task="causal_lm", **sizes | changes)

    return make


def test_fine_tuning_takes_the_head_of_a_language_model_from_its_source(new_run, make_source):
    """Of a left-to-right BERT; the last token is read because its mask is causal."""
    source = make_source(model__attention_pattern="causal", model__next_sentence=False)
    before = Run(store.load(str(source)), source).params()[0]
    changes = {
        "init_from": str(source),
        "task.lm_weight": 0.5,
        "optimizer.learning_rate": 1e-5,
        "epochs": 0.0,
        "steps": 1,
    }
    run = new_run("classification", changes)
    assert run.config.task.pool == "last" and run.config.task.pooler
    assert "with new, random ones for bert/pooler, classifier\n" in run.train().printed
    assert "encoder    task.pool=last" in run.printed
    after = flatten(jax.device_get(run.state.params))
    moved = before.keys() & after.keys()
    assert {"masked_lm/bias", "masked_lm/transform/kernel"} <= moved == before.keys()
    for path in moved:
        assert 0 < np.abs(after[path] - before[path]).max() < 1e-3, path


def test_a_configuration_of_bert_fine_tunes_a_gpt(new_run, make_source, tmp_path):
    """Its model, its head, its loss and its optimizer, from one field."""
    source = make_source(
        model=GptConfig(initializer="truncated_normal", layer_norm_epsilon=1e-12),
    )
    changes = {"init_from": str(source), "epochs": 0.0, "steps": 2}
    defaults = default_config("multiple_choice").optimizer.to_dict()
    for field in ("name", "schedule", "learning_rate", "warmup"):
        changes[f"optimizer.{field}"] = defaults[field]
    run = new_run("multiple_choice", changes).train()
    config = run.config
    assert config.model.name == "gpt" and not hasattr(config.model, "type_vocab_size")
    assert (config.task.pool, config.task.pooler, config.task.lm_weight) == ("last", False, 0.5)
    assert (config.optimizer.name, config.optimizer.schedule) == ("gpt_adam", "gpt_linear")
    assert config.optimizer.learning_rate == 6.25e-5 and config.model.dropout_rate == 0.1
    assert run.state.params.keys() == {"gpt", "classifier"}
    (line,) = [line for line in run.printed.splitlines() if line.startswith("encoder  ")]
    for value in ("task.pool=last", "task.pooler=False", "task.lm_weight=0.5"):
        assert value in line
    assert run.rows("train")[-1]["lm_loss"] > 0

    path, output = tmp_path / "input.csv", tmp_path / "output.jsonl"
    write_choices(path, random.Random(1), 5)
    assert predict_file(store.load(str(run.workdir)), str(run.workdir), str(path), str(output)) == 5
