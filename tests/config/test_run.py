"""The configuration of a run: fields by name, and every value that no run can use."""

import re

import pytest
from ml_collections import ConfigDict

from bert_jax.config.store import parse
from bert_jax.config.task import TASKS, default_config


@pytest.mark.parametrize(
    "values, message",
    [
        ({"steps": 0}, "config.steps=0 must be above 0."),
        ({"seed": -1}, "config.seed=-1 must be at least 0."),
        ({"optimizer.learning_rate": float("nan")}, "learning_rate=nan is not a finite number."),
        ({"model.dropout_rate": 1.0}, "dropout_rate=1.0 must be at least 0 and below 1."),
        ({"mesh.data": 0}, "mesh.data=0 must be at least 1, or -1 for all remaining devices."),
        ({"dtype": "float16"}, "dtype='float16' must be one of float32, bfloat16, bfloat16_pr"),
        ({"checkpoint.best_metric": "f1"}, "best_metric='f1' must be one of loss,"),
        ({"epochs": 1.0, "tokens": 5}, "config.epochs and config.tokens both give the length"),
        ({"optimizer.no_decay": ("(",)}, "config.optimizer.no_decay=('(',) are not regular"),
        ({"optimizer.phase_schedules": ((1e-3, 0.1),)}, "is not a pair of a"),
        ({"phases": ((1024, 1.0),)}, "has a sequence length of 1024, above"),
        ({"phases": ((4, 1.0),)}, "has a sequence length below 8"),
        (
            {"model.attention": "cudnn", "model.attention_dropout_rate": 0.0},
            "attention='cudnn' needs config.dtype='bfloat16', not 'float32'",
        ),
        ({"data.segments": "full_sentences"}, "next_sentence=True needs config.data.segments="),
        (
            {"model.next_sentence": False, "checkpoint.best_metric": "next_sentence_loss"},
            "best_metric='next_sentence_loss' is not measured",
        ),
        (
            {"data.mode": "static", "phases": ((128, 0.5, 0, 20), (128, 0.5))},
            "has sequences of 128 tokens with 20 and with 19 predictions",
        ),
    ],
)
def test_an_invalid_value_is_named(values, message, make_config):
    with pytest.raises(ValueError) as error:
        make_config(**values)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"metrics": ()}, "config.metrics is empty: name a score, such as accuracy."),
        (
            {"data.bucket_lengths": (64, 32)},
            "config.data.bucket_lengths=(64, 32) are not ascending, positive",
        ),
        ({"reinit_layers": 13}, "config.reinit_layers=13 is above config.model.num_layers=12."),
        ({"optimizer.frozen_layers": -2}, "must be at least 0, or -1 for all layers."),
    ],
)
def test_an_invalid_value_of_fine_tuning_is_named(values, message, make_labelled):
    with pytest.raises(ValueError) as error:
        make_labelled(**values)
    assert message in str(error.value)


def test_the_metrics_of_a_task_on_a_corpus_are_those_of_its_configuration(make_config):
    values = {"checkpoint.best_metric": "surprise", "metrics": ("surprise", "delight")}
    config = make_config(**values)
    with pytest.raises(ValueError, match="'masked_lm_loss' must be one of loss, surprise, delight"):
        config.replace({"checkpoint.best_metric": "masked_lm_loss"})


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda values: values.pop("seed"), "config.seed is missing."),
        (lambda values: values["model"].pop("num_heads"), "config.model.num_heads is missing."),
        (lambda values: values.pop("mesh"), "config.mesh is missing."),
        (
            lambda values: values.update(stpes=3),
            "config.stpes does not exist: did you mean 'steps'?",
        ),
        (lambda values: values["model"].update(name="gru"), "config.model.name='gru' must be one"),
        (lambda values: values.update(steps=1 << 63), "is not a finite number."),
        (lambda values: values.update(phases="x"), "config.phases='x' must be of type tuple."),
        (lambda values: values["data"].update(lowercase=1), "lowercase=1 must be of type bool."),
    ],
)
def test_fields_that_are_missing_unknown_or_of_another_type(change, message, make_config):
    values = make_config().to_dict()
    change(values)
    with pytest.raises(ValueError) as error:
        parse(values)
    assert message in str(error.value)


@pytest.mark.parametrize("name", TASKS)
def test_an_editable_copy_is_parsed_back(name):
    config = default_config(name)
    copy = config.to_config_dict()
    assert isinstance(copy, ConfigDict) and parse(copy) == config == parse(config.to_dict())
    copy.seed = 3
    assert parse(copy) == config.replace({"seed": 3}) != config


def test_fields_are_dotted_names_in_order(make_config):
    config = make_config(seed=3)
    names = config.fields()
    assert list(names) == sorted(names)
    assert (names["seed"], config["seed"], config["model.name"]) == (3, 3, "bert")
    assert config.get("task.pool", "cls") == "cls" and config.get("task.pool") is None


def test_values_of_other_groups_are_set_where_they_are_needed(make_config):
    changes = {"dtype": "bfloat16", "prng_impl": "rbg", "model.vocab_size": 100}
    config = make_config(phases=((128, 0.5, 0, 20), (64, 0.3), (128, 0.2, 8, 20)), **changes)
    assert (config.model.dtype, config.model.prng_impl) == ("bfloat16", "rbg")
    assert (config.data.sequence_lengths, config.data.num_predictions) == ((64, 128), (10, 20))
    assert config.data.vocab_size == 100
    assert (config.optimizer.encoder, config.optimizer.phase_shares) == ("bert", (0.5, 0.3, 0.2))
    assert not {"model.dtype", "data.vocab_size", "optimizer.encoder"} & config.fields().keys()


def test_data_is_in_the_folder_of_the_run_by_default(make_config):
    assert make_config().data_dir("/run") == "/run/data"
    assert make_config(**{"data.dir": "/data"}).data_dir("/run") == "/data"


@pytest.mark.parametrize(
    "num_layers, count, layers", [(12, 0, ()), (12, 1, (11,)), (12, 3, (9, 10, 11)), (2, 1, (1,))]
)
def test_parameters_that_are_not_taken_from_the_source(num_layers, count, layers, make_labelled):
    config = make_labelled(**{"model.num_layers": num_layers, "reinit_layers": count})
    pattern = config.reinitialized_pattern()
    parts = ("pooler/kernel", "embeddings/word_embeddings/embedding")
    parts += tuple(f"encoder/layer_{i}/output/bias" for i in range(num_layers))
    everything = [f"{name}/{part}" for name in ("bert", "other") for part in parts]
    found = {path for path in everything if pattern and re.search(pattern, path)}
    expected = {f"bert/encoder/layer_{i}/output/bias" for i in layers}
    assert found == (expected | {"bert/pooler/kernel"} if layers else set())
