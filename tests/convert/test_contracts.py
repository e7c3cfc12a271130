"""The tables of models, tasks and formats agree."""

import pytest

from bert_jax.formats import FORMATS
from bert_jax.formats.huggingface import TASKS_BY_CLASS
from bert_jax.models import MODELS
from bert_jax.tasks import TASKS
from bert_jax.training.initial import pretraining_shapes
from bert_jax.training.run import make_model_config


@pytest.mark.parametrize("model", MODELS)
def test_formats_of_a_model_exist_and_name_every_parameter(model):
    config = TASKS["pretraining"].default_config()
    config.model.name = model
    model_config = make_model_config(config)
    paths = set(pretraining_shapes(model_config, next_sentence=True))
    paths |= {
        f"{row.head}/{leaf}" for row in TASKS.values() if row.head for leaf in ("kernel", "bias")
    }
    for format, table in MODELS[model].formats.items():
        assert format in FORMATS
        rows = table.expand(model_config.num_layers)
        assert {row.path for row in rows} == paths
        assert len({row.tensor for row in rows}) == len(rows)


def test_classes_of_transformers_are_those_of_the_tasks():
    assert TASKS_BY_CLASS == {
        row.huggingface_class: name for name, row in TASKS.items() if row.head
    }
