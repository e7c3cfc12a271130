"""Small models, batches in the one form that all models take, random parameters and a loss."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

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


def make_config(**changes: Any) -> BertConfig:
    """BertConfig with small sizes; keyword arguments change fields."""
    return dataclasses.replace(TINY, **changes)


def make_batch(
    config=TINY, batch=3, seq=24, predictions=5, shortest=10, seed=0
) -> dict[str, np.ndarray]:
    """A masked batch of one example a row, of random lengths from `shortest` to `seq`."""
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


def parameter_count(module: nn.Module, batch: Any) -> int:
    """Returns the number of a module's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(module, batch)))


def random_params(module: nn.Module, batch: Any, seed: int = 0, spread: float = 0.1) -> Any:
    """Returns parameters far from their initial values: biases and scales are random too."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if path[-1].key == "scale" else 0.0
        return (centre + spread * rng.standard_normal(leaf.shape)).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, parameter_shapes(module, batch))


def apply(module: nn.Module, params: Any, batch: Any, seed: int | None = None, **options) -> Any:
    """Returns the outputs as numpy arrays; compiled once for equal modules.

    Args:
      module: called as `module(batch, deterministic=..., **options)`.
      params: its parameters.
      batch: what it takes.
      seed: of the dropout; None: there is none.
      **options: hashable values.
    """
    options |= {"deterministic": seed is None}
    key = None if seed is None else jax.random.key(seed)
    return jax.device_get(_apply(module, tuple(options.items()), params, batch, key))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _apply(module, options, params, batch, key):
    rngs = None if key is None else {"dropout": key}
    return module.apply({"params": params}, batch, rngs=rngs, **dict(options))


def cross_entropy(logits, labels, weights) -> jax.Array:
    """The weighted mean of the cross-entropy."""
    logs = jax.nn.log_softmax(logits)
    of_label = jnp.take_along_axis(logs, jnp.asarray(labels)[..., None], axis=-1)[..., 0]
    return -(of_label * weights).sum() / weights.sum()


def pre_training_loss(outputs, batch) -> jax.Array:
    """The sum of the losses of the heads, of PreTrainingOutputs."""
    names = ("masked_lm_ids", "masked_lm_weights")
    total = cross_entropy(outputs.masked_lm_logits, *(batch[name] for name in names))
    if outputs.next_sentence_logits is not None:
        names = ("next_sentence_labels", "next_sentence_weights")
        total += cross_entropy(outputs.next_sentence_logits, *(batch[name] for name in names))
    return total


def loss_and_gradient(module: nn.Module, params: Any, batch: Any, seed: int | None = None) -> Any:
    """Returns loss and gradient of pre-training, with dropout if there is a seed; see `apply`."""
    key = None if seed is None else jax.random.key(seed)
    return jax.device_get(_loss_and_gradient(module, params, batch, key))


@functools.partial(jax.jit, static_argnums=0)
def _loss_and_gradient(module, params, batch, key):
    options = {} if key is None else {"rngs": {"dropout": key}}

    def loss_of(params):
        outputs = module.apply({"params": params}, batch, deterministic=key is None, **options)
        return pre_training_loss(outputs, batch)

    return jax.value_and_grad(loss_of)(params)


def assert_close(tree: Any, other: Any, **tolerance: float) -> None:
    """Asserts that all arrays of two trees are close; without tolerances, equal."""
    check = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
    jax.tree.map(lambda a, b: check(a, b, **tolerance), tree, other)
