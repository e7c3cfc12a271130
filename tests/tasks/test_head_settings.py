"""The fields of config.head that decide what is read, and those that are refused."""

import pytest

from bert_jax.config import defaults
from bert_jax.models.reading import HeadConfig
from bert_jax.models.task_heads import TAGGING_HEADS
from bert_jax.tasks.head_settings import check_head, make_head
from tests.tiny import make_model


def make(frozen=False, **head):
    values = {f"head.{name}": value for name, value in head.items()}
    values["optimizer.frozen_layers"] = -int(frozen)
    return make_head(defaults.classification().replace(values), "classification")


def test_fields_are_taken_and_missing_ones_are_those_of_bert():
    assert make() == HeadConfig()
    found = make(frozen=True, classification="bilstm", pool="max", dropout_rate=0.5, lstm_size=3)
    assert found == HeadConfig(
        head="bilstm", pool="max", dropout_rate=0.5, lstm_size=3, frozen=True
    )


@pytest.mark.parametrize(
    "head, message",
    [
        ({"classification": "crf"}, "head.classification: 'crf' is none of linear, bilstm."),
        ({"pool": "first"}, "head.pool: 'first' is none of cls, last, mean, max."),
        (
            {"layers": "all"},
            "head.layers: 'all' is none of last, embeddings, .*mix_with_embeddings",
        ),
        (
            {"mix_l2": 0.1},
            "head.mix_l2=0.1 has no effect with head.layers='last', .*set head.mix_l2=0.0, or",
        ),
        (
            {"mix_layer_norm": True, "layers": "sum_all"},
            "head.mix_layer_norm=True has no effect with head.layers='sum_all'.*=False, or",
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
    assert make_head(config, "tagging", TAGGING_HEADS).frozen


def test_a_causal_model_pools_elsewhere_than_at_its_first_token():
    causal = make_model(attention_pattern="causal")
    message = "head.pool='cls' reads the first token, which sees no other one .*head.pool=last"
    with pytest.raises(ValueError, match=message):
        check_head(HeadConfig(), causal, pools=True)
    check_head(HeadConfig(), causal)  # tags and spans
    check_head(HeadConfig(), make_model(), pools=True)
    for pool in ("last", "mean", "max"):
        check_head(HeadConfig(pool=pool), causal, pools=True)
