"""Normalization, and its place in a residual sub-layer."""

from collections.abc import Callable

import flax.linen as nn
import jax

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.devices.sharding import split_rows
from bert_jax.models.model import EncoderConfig, activation_dtype


def layer_norm(
    config: EncoderConfig, name: str | None = None, biases: bool | None = None
) -> nn.LayerNorm | nn.RMSNorm:
    """Returns the normalization over the last dimension that config.norm names.

    float[...] -> activation_dtype[...]. Statistics are float32. The variance is computed from the
    centered values: E[x^2] - E[x]^2, flax's default, loses all digits if the mean is large.

    Args:
      config: the encoder's configuration.
      name: the submodule's name.
      biases: whether a layer norm adds a bias; None: `config.biases`.
    """
    dtype = activation_dtype(config)
    if config.norm == "rms_norm":
        return nn.RMSNorm(config.layer_norm_epsilon, dtype=dtype, name=name)
    return nn.LayerNorm(
        config.layer_norm_epsilon,
        dtype=dtype,
        use_bias=config.biases if biases is None else biases,
        use_fast_variance=False,
        name=name,
    )


def residual(
    config: TransformerConfig,
    x: jax.Array,
    sub_layer: Callable[[jax.Array], jax.Array],
    has_norm: bool = True,
    read: Callable[[jax.Array], jax.Array] = lambda x: x,
) -> jax.Array:
    """The residual sum of a sub-layer with its layer normalization.

    norm_place="post": norm(x + sub_layer(x)); norm_place="pre": x + sub_layer(norm(x)). Call it in
    a compact method: it creates the submodule `layer_norm` there.

    Args:
      config: the encoder's configuration.
      x: float[batch, seq, hidden].
      sub_layer: function of an array of that shape; it returns the positions that `read` selects.
      has_norm: False leaves the normalization out.
      read: selects the positions of the sum, float[batch, positions, hidden].
    """
    if not has_norm:
        return split_rows(read(x) + sub_layer(x))
    norm = layer_norm(config, "layer_norm")
    if config.norm_place == "pre":
        return split_rows(read(x) + sub_layer(norm(x)))
    return split_rows(norm(read(x) + sub_layer(x)))
