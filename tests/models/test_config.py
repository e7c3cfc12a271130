"""Configurations: which values are allowed, and how an encoder is made from fields."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from bert_jax import models
from bert_jax.models import MODELS, make_encoder
from bert_jax.models.bert import Bert, BertConfig
from bert_jax.models.heads import PreTrainingModel

NO_DROPOUT = {"attention_dropout_rate": 0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, "hidden_size=32 is not divisible by num_heads=5."),
        ({"activation": "relu"}, "activation='relu' is none of gelu_tanh, gelu."),
        ({"dtype": "float16"}, "dtype='float16' is none of float32, bfloat16, bfloat16_products."),
        ({"norm_place": "middle"}, "norm_place='middle' is none of post, pre."),
        (
            {"positions": "relative"},
            "positions='relative' is none of learned, sinusoidal, rotary, none.",
        ),
        (
            {"attention_pattern": "future"},
            "attention_pattern='future' is none of bidirectional, causal, window.",
        ),
        ({"initializer": "uniform"}, "initializer='uniform' is none of truncated_normal, normal."),
        ({"lm_head": "untied"}, "lm_head='untied' is none of transform, tied."),
        ({"norm": "batch_norm"}, "norm='batch_norm' is none of layer_norm, rms_norm."),
        ({"first_layer_norm": False}, "first_layer_norm=False needs norm_place='pre'."),
        (
            {"global_every": 3},
            "global_every=3 and window_rotary_base=0.0 have no effect with"
            " attention_pattern='bidirectional':"
            " set both to 0, or attention_pattern='window'.",
        ),
        (
            {
                "attention_pattern": "window",
                "attention_window": 2,
                "global_every": 3,
                "scan_layers": True,
            },
            "scan_layers=True needs blocks that are all alike, not global_every=3 and"
            " first_layer_norm=True: set scan_layers=False.",
        ),
        ({"feed_forward": "moe"}, "feed_forward='moe' is none of plain, gated."),
        (
            {"attention": "flash"},
            "attention='flash' is none of einsum, dot_product, cudnn, splash.",
        ),
        (
            {"positions": "rotary", "num_heads": 32},
            "positions='rotary' needs an even hidden_size / num_heads, not 32 / 32 = 1: change one"
            " of them.",
        ),
        (
            {"positions": "sinusoidal", "hidden_size": 33, "num_heads": 3},
            "positions='sinusoidal' needs an even hidden_size, not 33.",
        ),
        (
            {"attention_pattern": "window"},
            "attention_window=0 with attention_pattern='window' must be at least 1: set"
            " attention_window to the number of"
            " visible positions on each side.",
        ),
        (
            {"attention_window": 3},
            "attention_window=3 has no effect with attention_pattern='bidirectional': set"
            " attention_window=0, or attention_pattern='window'.",
        ),
        (
            {"attention": "dot_product"},
            "attention='dot_product' has no dropout of probabilities, and"
            " attention_dropout_rate=0.1: set attention_dropout_rate=0, or attention='einsum'.",
        ),
        (
            {"attention": "cudnn"} | NO_DROPOUT,
            "attention='cudnn' needs dtype='bfloat16', not 'float32': change dtype, or set"
            " attention='dot_product'.",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused(make_config, changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_config(**changes)


def test_the_defaults_are_those_of_bert(make_config):
    config = make_config()
    found = {
        name: getattr(config, name) for name in ("norm_place", "positions", "attention_pattern")
    }
    assert found == {
        "norm_place": "post",
        "positions": "learned",
        "attention_pattern": "bidirectional",
    }
    assert (config.feed_forward, config.attention, config.attention_window) == (
        "plain",
        "einsum",
        0,
    )
    assert (config.initializer, config.lm_head) == ("truncated_normal", "transform")
    assert (config.name, config.mask_value, config.head_dim) == ("bert", -10_000.0, 8)


def test_rows_of_the_vocabulary_are_rounded_up(make_config):
    assert make_config(pad_vocab_to_multiple_of=64).padded_vocab_size == 128
    assert make_config(vocab_size=128, pad_vocab_to_multiple_of=64).padded_vocab_size == 128


def test_an_encoder_is_made_from_fields(make_config):
    fields = dataclasses.asdict(make_config())
    assert make_config() == models.make_config(fields)
    assert isinstance(models.make_config(fields), BertConfig)
    del fields["name"], fields["mask_value"]
    assert models.make_config(fields) == make_config()
    encoder = make_encoder(models.make_config(fields), name="somewhere")
    assert isinstance(encoder, Bert) and encoder.name == "somewhere"


def test_wrong_fields_are_refused(make_config):
    fields = dataclasses.asdict(make_config())
    unknown = rf"^Unknown model 'gru'\. Available: {', '.join(MODELS)}\.$"
    with pytest.raises(ValueError, match=unknown):
        models.make_config(fields | {"name": "gru"})
    with pytest.raises(ValueError, match=unknown):
        make_encoder(dataclasses.replace(make_config(), name="gru"))
    with pytest.raises(ValueError, match=r"^Model 'bert' has no field next_sentence, widht\. Av"):
        models.make_config(fields | {"next_sentence": True, "widht": 3})
    del fields["hidden_size"], fields["remat"]
    with pytest.raises(
        ValueError, match=r"^Model 'bert' needs a value of hidden_size, remat: set it\.$"
    ):
        models.make_config(fields)
    with pytest.raises(ValueError, match="activation='relu' is none of"):
        models.make_config(dataclasses.asdict(make_config()) | {"activation": "relu"})


@pytest.mark.parametrize("name", MODELS)
def test_every_row_is_named_as_its_configuration(name):
    fields = {field.name: field for field in dataclasses.fields(MODELS[name].config)}
    assert fields["name"].default == name


def test_parameters_start_as_in_the_released_code(make_config, make_batch):
    """Truncated normal of 0.02, not rescaled; biases 0, scales 1; all float32."""
    config = make_config(
        hidden_size=128,
        intermediate_size=512,
        vocab_size=500,
        dtype="bfloat16",
        norm_place="pre",
        feed_forward="gated",
        num_layers=1,
    )
    model, batch = PreTrainingModel(config, next_sentence=True), make_batch(config)
    init = jax.jit(lambda key: model.init(key, batch, deterministic=True)["params"])
    params = init(jax.random.key(0))
    # Of the standard normal cut off at two standard deviations.
    deviation = 0.02 * np.sqrt(1 - 2 * 2 * np.exp(-2) / np.sqrt(2 * np.pi) / 0.9544997)
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = jax.tree_util.keystr(path)
        assert leaf.dtype == np.float32
        if path[-1].key in ("bias", "scale"):
            assert (leaf == (path[-1].key == "scale")).all(), name
        else:
            assert np.abs(leaf).max() <= 0.04, name
            if leaf.size > 10_000:
                assert leaf.std() == pytest.approx(deviation, rel=0.03), name
                assert leaf.mean() == pytest.approx(0, abs=5e-4), name


def test_kernels_may_start_from_a_normal_distribution_that_is_not_truncated(
    make_config, make_batch
):
    """Every kernel and every table, and no bias or scale; 1 in 22 is past two deviations."""
    sizes = {"hidden_size": 128, "intermediate_size": 512, "vocab_size": 500, "num_layers": 1}
    config = make_config(**sizes, initializer="normal")
    model, batch = PreTrainingModel(config, next_sentence=True), make_batch(config)
    init = jax.jit(lambda key: model.init(key, batch, deterministic=True)["params"])
    for path, leaf in jax.tree_util.tree_flatten_with_path(init(jax.random.key(0)))[0]:
        name = jax.tree_util.keystr(path)
        if path[-1].key in ("bias", "scale"):
            assert (leaf == (path[-1].key == "scale")).all(), name
        elif leaf.size > 10_000:
            assert leaf.std() == pytest.approx(0.02, rel=0.03), name
            assert np.mean(np.abs(leaf) > 0.04) == pytest.approx(0.0455, rel=0.1), name
