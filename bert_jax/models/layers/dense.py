"""Dense layers, the feed-forward network, embedding tables, and their initial values."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.devices.sharding import gather_features, split_rows
from bert_jax.models.layers.cpu import matmul, rounded_matmul
from bert_jax.models.model import EncoderConfig, activation_dtype

_INITIALIZERS = {
    "truncated_normal": nn.initializers.truncated_normal,
    "normal": nn.initializers.normal,
}


def initializer(config: EncoderConfig) -> Initializer:
    """Returns the function (key, shape, dtype) -> initial values of kernels and tables.

    As in BERT's `modeling.py`, a truncated normal is not rescaled to make up for the truncation.
    """
    return _INITIALIZERS[config.initializer](config.initializer_range)


def dense(config: EncoderConfig, features: int, name: str | None = None) -> nn.Dense:
    """Returns a dense layer, float[batch, n, in] -> activation_dtype[batch, n, features].

    The kernel is initialized by `initializer`, the bias, if config.biases, to zero. Parameters are
    float32.
    """
    product = rounded_matmul if config.rounds_products else matmul
    return nn.Dense(
        features,
        use_bias=config.biases,
        dtype=activation_dtype(config),
        kernel_init=initializer(config),
        dot_general=lambda x, kernel, *_, **__: product(x, kernel),
        name=name,
    )


class Table(nn.Embed):
    """A table of embeddings, float32[rows, features]."""

    def __call__(self, ids: jax.Array) -> jax.Array:
        """int32[batch, ...] -> float32[batch, ..., features]."""
        return split_rows(jnp.take(self.whole(), ids, axis=0))

    def whole(self) -> jax.Array:
        """float32[rows, features], the table; see `gather_features`."""
        return gather_features(self.embedding)


def embedding(config: EncoderConfig, rows: int) -> Table:
    """Returns a table float32[rows, config.embedding_size] with the initial values of `dense`."""
    return Table(rows, config.embedding_size, embedding_init=initializer(config))


def activate(config: EncoderConfig, x: jax.Array) -> jax.Array:
    """GELU (Hendrycks & Gimpel 2016) or another function, float[...] -> float[...].

    activation="gelu" is x * Phi(x); "gelu_tanh" approximates Phi by tanh, as in the released code
    of BERT since February 2019; "relu_squared" is max(x, 0)^2 (So et al. 2021, section 4.2). The
    backward pass recomputes all but the input.
    """
    if config.activation == "relu_squared":
        return jax.checkpoint(lambda x: jnp.square(nn.relu(x)))(x)
    gelu = functools.partial(nn.gelu, approximate=config.activation == "gelu_tanh")
    return jax.checkpoint(gelu)(x)


def feed_forward(config: TransformerConfig, x: jax.Array) -> jax.Array:
    """Two dense layers with an activation between them, float[batch, seq, hidden] -> the same.

    `plain`: output(activate(intermediate(x))). `gated` (Shazeer 2020, equation 6):
    output(activate(gate(x)) * intermediate(x)). Call it in a compact method: it creates the
    submodules `intermediate`, `output` and, if gated, `gate` there.
    """
    if config.feed_forward == "gated":
        gate = activate(config, dense(config, config.intermediate_size, "gate")(x))
        inner = gate * dense(config, config.intermediate_size, "intermediate")(x)
    else:
        inner = activate(config, dense(config, config.intermediate_size, "intermediate")(x))
    return dense(config, config.hidden_size, "output")(inner)
