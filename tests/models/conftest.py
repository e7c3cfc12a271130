"""Small models, and batches in the one form that all models take."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.models import BertConfig, BertForPreTraining

TINY = BertConfig(
    vocab_size=97,
    pad_vocab_to_multiple_of=1,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    type_vocab_size=2,
    dropout_rate=0.1,
    attention_dropout_rate=0.1,
    initializer_range=0.02,
    layer_norm_epsilon=1e-12,
    activation="gelu",
    remat=False,
    prng_impl="threefry2x32",  # the fastest to compile
)


@pytest.fixture
def make_config():
    """BertConfig with small sizes; keyword arguments change fields."""
    return lambda **changes: dataclasses.replace(TINY, **changes)


@pytest.fixture
def make_batch():
    """A masked batch of one example a row, of random lengths from `shortest` to `seq`."""

    def make(config, batch=3, seq=24, predictions=5, shortest=10, seed=0):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(shortest, seq + 1, batch)
        lengths[0] = seq
        place = np.broadcast_to(np.arange(seq), (batch, seq))
        real = place < lengths[:, None]
        positions = np.sort(
            [rng.choice(np.arange(1, n - 1), predictions, replace=False) for n in lengths]
        )
        weights = np.ones((batch, predictions), np.float32)
        weights[-1, -2:] = 0
        arrays = {
            "input_ids": np.where(real, rng.integers(1, config.vocab_size, (batch, seq)), 0),
            "token_type_ids": real & (place >= lengths[:, None] // 2),
            "position_ids": place,
            "example_ids": real,
            "cls_positions": np.zeros((batch, 1)),
            "masked_lm_positions": np.where(weights > 0, positions, 0),
            "masked_lm_ids": np.where(weights > 0, rng.integers(1, config.vocab_size), 0),
            "next_sentence_labels": rng.integers(0, 2, (batch, 1)),
        }
        batch_arrays = {name: array.astype(np.int32) for name, array in arrays.items()}
        ones = np.ones((batch, 1), np.float32)
        return batch_arrays | {"masked_lm_weights": weights, "next_sentence_weights": ones}

    return make


@pytest.fixture
def random_params():
    """Parameters far from their start: every bias and every scale is random too."""

    def make(config, batch, seed=0):
        init = BertForPreTraining(config).init
        shapes = jax.eval_shape(
            lambda: init(jax.random.key(0), batch, deterministic=True)["params"]
        )
        rng = np.random.default_rng(seed)

        def draw(path, leaf):
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return (centre + 0.1 * rng.standard_normal(leaf.shape)).astype(np.float32)

        return jax.tree_util.tree_map_with_path(draw, shapes)

    return make
