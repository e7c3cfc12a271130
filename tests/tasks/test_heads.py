"""The fields of config.head that decide what is read, and those that are refused."""

import pytest

from bert_jax.config import defaults
from bert_jax.config.group import rules
from bert_jax.config.groups import HeadConfig
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.models.pooling import POOLS
from bert_jax.tasks.supervised import check_head, make_head
from tests.tiny import make_model


def make(frozen=False, **head):
    values = {f"head.{name}": value for name, value in head.items()}
    values["optimizer.frozen_layers"] = -int(frozen)
    return make_head(defaults.classification().replace(values), "classification")


def test_the_head_is_the_one_of_the_task():
    assert make() == HeadConfig()
    values = {"classification": "bilstm", "pool": "max", "dropout_rate": 0.5, "lstm_size": 3}
    assert make(frozen=True, **values) == HeadConfig(head="bilstm", frozen=True, **values)


def test_every_choice_is_in_its_table():
    choices = rules(HeadConfig)
    assert set(choices["layers"].choices) <= LAYER_CHOICES.keys()
    mixes = [name for name in choices["layers"].choices if LAYER_CHOICES[name].num_weights(3)]
    assert mixes == ["scalar_mix", "mix_last_4", "mix_with_embeddings"]
    assert choices["pool"].choices == tuple(POOLS)


@pytest.mark.parametrize(
    "head, message",
    [
        ({"classification": "crf"}, "head.classification='crf' must be one of linear, bilstm."),
        ({"pool": "first"}, "head.pool='first' must be one of cls, last, mean, max."),
        ({"layers": "all"}, "head.layers='all' must be one of last, .*mix_with_embeddings"),
        (
            {"mix_l2": 0.1},
            "head.mix_l2=0.1 has no effect with config.head.layers='last', .*set mix_l2=0.0, or",
        ),
        (
            {"mix_layer_norm": True, "layers": "sum_all"},
            "head.mix_layer_norm=True has no effect with config.head.layers='sum_all'.*=False, or",
        ),
    ],
)
def test_values_without_meaning_are_refused(head, message):
    with pytest.raises(ValueError, match=message):
        make(**head)


def test_a_frozen_encoder_gives_features_unless_it_has_a_pooler():
    assert not make(frozen=True).frozen
    for changes in ({"pooler": False}, {"layers": "sum_all"}, {"classification": "bilstm"}):
        assert make(frozen=True, **changes).frozen
        assert not make(**changes).frozen
    config = defaults.tagging().replace({"optimizer.frozen_layers": -1})
    assert make_head(config, "tagging").frozen


def test_a_causal_model_pools_elsewhere_than_at_its_first_token():
    causal = make_model(attention_pattern="causal")
    message = "head.pool='cls' reads the first token, which sees no other one .*head.pool=last"
    with pytest.raises(ValueError, match=message):
        check_head(HeadConfig(), causal, pools=True)
    check_head(HeadConfig(), causal)  # tags and spans
    check_head(HeadConfig(), make_model(), pools=True)
    for pool in ("last", "mean", "max"):
        check_head(HeadConfig(pool=pool), causal, pools=True)
