"""The fields of config.task that decide what is read, and those that are refused."""

from typing import Any

import pytest

from bert_jax.config.group import rules
from bert_jax.config.task import default_config
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.pooling import POOLS
from bert_jax.models.reading import PooledHeadConfig
from tests.tiny import make_model

TOKENIZER: Any = None


def make(task="classification", frozen=False, **fields):
    values = {f"task.{name}": value for name, value in fields.items()}
    values["optimizer.frozen_layers"] = -int(frozen)
    return default_config(task).replace(values).task


def test_every_choice_is_in_its_table():
    choices = rules(PooledHeadConfig)
    assert set(choices["layers"].choices) <= LAYER_CHOICES.keys()
    mixes = [name for name in choices["layers"].choices if LAYER_CHOICES[name].num_weights(3)]
    assert mixes == ["scalar_mix", "mix_last_4", "mix_with_embeddings"]
    assert choices["pool"].choices == tuple(POOLS)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"head": "crf"}, "task.head='crf' must be one of linear, bilstm."),
        ({"layers": "all"}, "task.layers='all' must be one of last, .*mix_with_embeddings"),
        ({"mix_l2": 0.1}, "task.mix_l2=0.1 has no effect with config.task.layers='last', .*set"),
    ],
)
def test_values_without_meaning_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        make(**fields)


def test_a_frozen_encoder_gives_features_unless_it_has_a_pooler():
    assert not make(frozen=True).frozen
    for changes in ({"pooler": False}, {"layers": "sum_all"}, {"head": "bilstm"}):
        assert make(frozen=True, **changes).frozen
        assert not make(**changes).frozen
    assert make("tagging", frozen=True).frozen
    assert not make("span", frozen=True).frozen
    assert make("span", frozen=True, head="bilstm").frozen


def test_a_causal_model_pools_elsewhere_than_at_its_first_token():
    causal = make_model(attention_pattern="causal")
    message = "task.pool='cls' reads the first token, which sees no other one .*task.pool=last"
    with pytest.raises(ValueError, match=message):
        make().bind(causal, TOKENIZER)
    make("tagging").bind(causal, TOKENIZER)
    make(pool="last").bind(causal, TOKENIZER)
