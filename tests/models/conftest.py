"""Small models, batches in the one form that all models take, random parameters and a loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.bert import BertConfig
from bert_jax.models.model import parameter_shapes

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
    """Returns a function (module, batch) -> parameters far from their initial values.

    Biases and scales are random too.
    """

    def make(module, batch, seed=0, spread=0.1):
        rng = np.random.default_rng(seed)

        def draw(path, leaf):
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return (centre + spread * rng.standard_normal(leaf.shape)).astype(np.float32)

        return jax.tree_util.tree_map_with_path(draw, parameter_shapes(module, batch))

    return make


@pytest.fixture
def cross_entropy():
    """Returns the function (logits, labels, weights) -> weighted mean of the cross-entropy."""

    def mean(logits, labels, weights):
        logs = jax.nn.log_softmax(logits)
        of_label = jnp.take_along_axis(logs, jnp.asarray(labels)[..., None], axis=-1)[..., 0]
        return -(of_label * weights).sum() / weights.sum()

    return mean


@pytest.fixture
def pre_training_loss(cross_entropy):
    """Returns the function (PreTrainingOutputs, batch) -> the sum of the losses of the heads."""

    def loss(outputs, batch):
        names = ("masked_lm_ids", "masked_lm_weights")
        total = cross_entropy(outputs.masked_lm_logits, *(batch[name] for name in names))
        if outputs.next_sentence_logits is not None:
            names = ("next_sentence_labels", "next_sentence_weights")
            total += cross_entropy(outputs.next_sentence_logits, *(batch[name] for name in names))
        return total

    return loss


@pytest.fixture
def loss_and_gradient(pre_training_loss):
    """Returns a function (module, params, batch, seed) -> loss and gradient of pre-training.

    With dropout if there is a seed.
    """

    def run(module, params, batch, seed=None):
        options = {"deterministic": True}
        if seed is not None:
            options = {"deterministic": False, "rngs": {"dropout": jax.random.key(seed)}}

        def loss_of(params):
            return pre_training_loss(module.apply({"params": params}, batch, **options), batch)

        return jax.jit(jax.value_and_grad(loss_of))(jax.tree.map(jnp.asarray, params))

    return run
