"""A vector for each word, computed from its characters (Kim et al. 2016; Peters et al. 2018)."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.devices.sharding import split_rows

# Rows of the table of characters: 0 is a position without a word, 1 to 256 are the bytes of UTF-8,
# 257 and 258 start and end of sentence, 259 and 260 start and end of word, 261 is padding after the
# word. In training, bilm-tf has no row 0, so its ids are one less; its released weights have 261
# rows.
NUM_CHARACTERS = 262

CNN_ACTIVATIONS = {"relu": nn.relu, "tanh": jnp.tanh}


class CharacterCnn(nn.Module):
    """Embedding of bytes -> convolutions -> maximum over time -> activation -> highways -> dense.

    The dense layer is left out where the filters already have `features` features, as in bilm-tf.

    Attributes:
      config: an `ElmoConfig`.
      features: features of a word.
    """

    config: Any
    features: int

    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        """int32[batch, seq, characters] -> dtype[batch, seq, features]."""
        config, dtype = self.config, jnp.dtype(self.config.dtype)
        table = self.param(
            "embedding", _uniform(1.0), (NUM_CHARACTERS, config.character_size), jnp.float32
        )
        characters = jnp.take(table.astype(dtype), ids.reshape(-1, ids.shape[-1]), axis=0)
        x = jnp.concatenate(
            [
                _MaxFilter(config, width, count, name=f"filter_{i}")(characters)
                for i, (width, count) in enumerate(config.filters)
            ],
            axis=-1,
        )
        for i in range(config.highway_layers):
            x = _Highway(dtype, name=f"highway_{i}")(x)
        if x.shape[-1] != self.features:
            deviation = math.sqrt(1 / x.shape[-1])
            x = _dense(self.features, deviation, 0.0, dtype, "projection")(x)
        return split_rows(x.reshape(*ids.shape[:-1], self.features))


class _MaxFilter(nn.Module):
    """`count` filters over `width` characters -> maximum over time -> activation."""

    config: Any
    width: int
    count: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float[words, characters, size] -> float[words, count]."""
        size = x.shape[-1]
        init = _uniform(0.05)
        if self.config.cnn_activation == "tanh":
            init = nn.initializers.normal(math.sqrt(1 / (self.width * size)))
        kernel = self.param("kernel", init, (self.width, size, self.count), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.count,), jnp.float32)
        steps = x.shape[1] - self.width + 1
        # One matrix product: XLA's convolutions of this shape are slower on CPUs.
        windows = jnp.concatenate([x[:, i : i + steps] for i in range(self.width)], axis=-1)
        values = windows @ kernel.reshape(-1, self.count).astype(x.dtype)
        # Applied after the maximum: both are monotonic and the same at all positions.
        x = values.max(axis=1) + bias.astype(x.dtype)[None]
        return split_rows(CNN_ACTIVATIONS[self.config.cnn_activation](x))


class _Highway(nn.Module):
    """gate * relu(dense(x)) + (1 - gate) * x, where gate = sigmoid(dense(x)) starts near 0.12.

    Srivastava et al. (2015) call this gate the transform gate; bilm-tf names it "carry".
    """

    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float[words, features] -> float[words, features]."""
        features = x.shape[-1]
        deviation = math.sqrt(1 / features)
        gate = nn.sigmoid(_dense(features, deviation, -2.0, self.dtype, "carry")(x))
        new = nn.relu(_dense(features, deviation, 0.0, self.dtype, "transform")(x))
        return split_rows(gate * new + (1 - gate) * x)


def _dense(features: int, deviation: float, bias: float, dtype: jnp.dtype, name: str) -> nn.Dense:
    return nn.Dense(
        features,
        dtype=dtype,
        kernel_init=nn.initializers.normal(deviation),
        bias_init=nn.initializers.constant(bias),
        name=name,
    )


def _uniform(limit: float) -> nn.initializers.Initializer:
    """Returns the initializer of a uniform distribution from -limit to limit."""

    def init(key: jax.Array, shape: Any, dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init
