"""Sizes: the published numbers of parameters, and what cannot be a model."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.models import Bert, BertForPreTraining, parameter_count

BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_layers": 12,
    "num_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
LARGE = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 128, "num_layers": 2, "num_heads": 2, "intermediate_size": 512}


@pytest.mark.parametrize(
    ("sizes", "encoder", "with_heads"),
    [
        ({}, 109_482_240, 110_106_428),
        (LARGE, 335_141_888, 336_226_108),
        ({"vocab_size": 28996}, 108_310_272, 108_932_934),
        ({"vocab_size": 21128}, 102_267_648, 102_882_442),
        (TINY, 4_385_920, 4_433_468),
    ],
    ids=["base uncased", "large uncased", "base cased", "base chinese", "tiny"],
)
def test_numbers_of_parameters_are_the_published_ones(
    make_config, make_batch, sizes, encoder, with_heads
):
    config = make_config(**BASE | sizes)
    batch = make_batch(config)

    def count(model):
        init = lambda: model.init(jax.random.key(0), batch, deterministic=True)  # noqa: E731
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init)))

    assert count(Bert(config)) == parameter_count(config, heads=False) == encoder
    assert count(BertForPreTraining(config)) == parameter_count(config) == with_heads


def test_without_next_sentence_prediction_there_is_no_pooler_and_no_head(make_config, make_batch):
    config = make_config(**BASE, next_sentence=False)
    batch = make_batch(config)

    def count(model):
        init = lambda: model.init(jax.random.key(0), batch, deterministic=True)  # noqa: E731
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init)))

    pooler, head = 768 * 768 + 768, 768 * 2 + 2
    assert count(Bert(config)) == parameter_count(config, heads=False) == 109_482_240 - pooler
    assert count(BertForPreTraining(config)) == parameter_count(config)
    assert parameter_count(config) == 110_106_428 - pooler - head


def test_the_closed_form_counts_padded_rows_too(make_config, make_batch):
    config = make_config(vocab_size=97, pad_vocab_to_multiple_of=64)
    assert config.padded_vocab_size == 128
    assert make_config(vocab_size=128, pad_vocab_to_multiple_of=64).padded_vocab_size == 128
    params = BertForPreTraining(config).init(
        jax.random.key(0), make_batch(config), deterministic=True
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameter_count(config)


def test_parameters_start_as_in_the_released_code(make_config, make_batch):
    """Truncated normal of 0.02, not rescaled; biases 0, scales 1; all float32."""
    config = make_config(hidden_size=128, intermediate_size=512, vocab_size=500, dtype="bfloat16")
    params = BertForPreTraining(config).init(
        jax.random.key(0), make_batch(config), deterministic=True
    )
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, "hidden_size=32 is not divisible by num_heads=5."),
        ({"activation": "relu"}, "activation='relu' is none of gelu_tanh, gelu."),
        ({"dtype": "float16"}, "dtype='float16' is none of float32, bfloat16."),
    ],
)
def test_a_model_that_cannot_be_is_refused(make_config, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(make_config(), **changes)
