"""Layer normalisation, and its place in a residual sub-layer."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.model import EncoderConfig
from bert_jax.models.transformer import TransformerConfig


def layer_norm(config: EncoderConfig, name: str | None = None) -> nn.LayerNorm:
    """Returns layer normalisation over the last dimension, float[...] -> dtype[...].

    Statistics are float32. The variance is that of the centred values: E[x^2] - E[x]^2, the default
    of flax, loses all digits far from zero.
    """
    return nn.LayerNorm(
        config.layer_norm_epsilon,
        dtype=jnp.dtype(config.dtype),
        use_fast_variance=False,
        name=name,
    )


def residual(
    config: TransformerConfig, x: jax.Array, sub_layer: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """The residual sum of a sub-layer with its layer normalisation.

    norm_place="post": norm(x + sub_layer(x)); norm_place="pre": x + sub_layer(norm(x)). Call it in
    a compact method: it creates the submodule `layer_norm` there.

    Args:
      config: of the stack.
      x: float[batch, seq, hidden].
      sub_layer: function of an array of that shape, which keeps it.
    """
    norm = layer_norm(config, "layer_norm")
    if config.norm_place == "pre":
        return x + sub_layer(norm(x))
    return norm(x + sub_layer(x))
