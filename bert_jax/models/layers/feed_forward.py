"""The feed-forward network of a Transformer block, plain or gated, and its activation."""

import functools

import flax.linen as nn
import jax

from bert_jax.config.encoders import TransformerConfig
from bert_jax.models.layers.dense import dense
from bert_jax.models.model import EncoderConfig


def activate(config: EncoderConfig, x: jax.Array) -> jax.Array:
    """GELU (Hendrycks & Gimpel 2016), float[...] -> float[...].

    activation="gelu" is x * Phi(x); "gelu_tanh" approximates Phi by tanh, as in the released code
    of BERT since February 2019. The backward pass recomputes all but the input.
    """
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
