"""Encoder configurations: allowed values, published sizes, and making them from fields."""

import re

import pytest

from bert_jax.config.encoders import (
    ENCODERS,
    BertConfig,
    GptConfig,
    make_encoder_config,
)
from bert_jax.files.errors import UserError
from bert_jax.models import MODELS

SMALL = {"hidden_size": 32, "num_heads": 4}
NO_DROPOUT = {"attention_dropout_rate": 0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, "hidden_size=32 is not divisible by num_heads=5."),
        ({"activation": "relu"}, "activation='relu' must be one of gelu_tanh, gelu, relu_squared."),
        ({"copy_head": True, "attention_pattern": "causal"}, "copy_head=True copies masked tokens"),
        ({"first_layer_norm": False}, "first_layer_norm=False needs norm_place='pre'."),
        ({"global_every": 3}, "global_every=3 and window_rotary_base=0.0 have no effect with"),
        ({"mask_value": 0.0}, "mask_value=0.0 must be below 0."),
        (
            {"positions": "rotary", "num_heads": 32},
            "positions='rotary' needs an even hidden_size /",
        ),
        (
            {"positions": "sinusoidal", "hidden_size": 33, "num_heads": 3},
            "positions='sinusoidal' needs an even hidden_size, not 33.",
        ),
        ({"attention_pattern": "window"}, "attention_window=0 must be at least 1 with"),
        ({"attention_window": 3}, "attention_window=3 has no effect with"),
        ({"attention": "dot_product"}, "attention='dot_product' has no dropout of probabilities"),
    ],
)
def test_values_that_an_encoder_cannot_have(changes, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        BertConfig(**SMALL | changes)


def test_sizes_are_the_published_ones():
    config = BertConfig()
    assert config == BertConfig.base() and config.head_dim == 64
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (12, 768, 30_522)
    found = {
        size: (c.num_layers, c.hidden_size, c.num_heads, c.intermediate_size)
        for size in ("tiny", "mini", "small", "medium", "large")
        for c in [getattr(BertConfig, size)(vocab_size=100)]
    }
    assert found == {
        "tiny": (2, 128, 2, 512),
        "mini": (4, 256, 4, 1024),
        "small": (4, 512, 8, 2048),
        "medium": (8, 512, 8, 2048),
        "large": (24, 1024, 16, 4096),
    }


def test_a_configuration_is_made_from_fields():
    assert make_encoder_config({}) == BertConfig()
    assert make_encoder_config({"name": "gpt", "num_layers": 1}) == GptConfig(num_layers=1)
    with pytest.raises(UserError, match="^name='gru' must be one of bert, distilbert, .*gpt, elmo"):
        make_encoder_config({"name": "gru"})
    with pytest.raises(UserError, match="^name='bert' has no field widht. Available: name, vocab"):
        make_encoder_config({"widht": 3})


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_has_a_module_and_defaults_that_it_accepts(name):
    assert MODELS.keys() == ENCODERS.keys() and MODELS[name].config is ENCODERS[name]
    fields = ENCODERS[name]().to_dict()
    assert fields["name"] == name and "dtype" not in fields
    assert make_encoder_config(fields) == ENCODERS[name]()
