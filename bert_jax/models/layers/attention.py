"""Scaled dot-product attention and the self-attention sub-layer (Vaswani et al. 2017, section 3.2).

Shape suffixes: B batch, S query position, T key position, D hidden, H heads, K head_dim.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.files.errors import UserError
from bert_jax.models.layers.convolution import Convolution
from bert_jax.models.layers.cudnn import cudnn_attention, nan_unless_in_order
from bert_jax.models.layers.dense import dense
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.masks import AttentionMask
from bert_jax.models.layers.norm import layer_norm, residual
from bert_jax.models.layers.positions import Rotation, rotate
from bert_jax.models.layers.splash import has_splash, splash_attention

# (keys, values) of new positions -> those of all positions, float[batch, key seq, heads, head_dim].
Extend = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def attention(
    query_BSHK: jax.Array,
    key_BTHK: jax.Array,
    value_BTHK: jax.Array,
    mask: AttentionMask,
    *,
    implementation: str = "einsum",
    dropout: Callable[[jax.Array], jax.Array] | None = None,
    keep_probabilities: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """softmax(query key^T / sqrt(head_dim) + bias) value, for each head.

    Scores and softmax are float32; products accumulate in float32 where the device supports it.

    Args:
      query_BSHK: float[batch, seq, heads, head_dim].
      key_BTHK: float[batch, key seq, heads, head_dim].
      value_BTHK: float[batch, key seq, heads, head_dim].
      mask: which positions attend to which.
      implementation: `einsum`, the formula itself; `dot_product`, jax's function compiled by XLA;
        `cudnn`, see `cudnn_attention`; `splash`, see `splash_attention`, or the formula where
        `has_splash` is False.
      dropout: applied to float32[batch, heads, seq, key seq] probabilities; `einsum` only.
      keep_probabilities: also return the probabilities before dropout; `einsum` only.

    Returns:
      float[batch, seq, heads, head_dim], and float32[batch, heads, seq, key seq] probabilities if
      requested, otherwise None.

    Raises:
      UserError: for an implementation that cannot do what is requested.
    """
    if implementation != "einsum":
        if dropout is not None or keep_probabilities:
            what = "dropout of" if dropout is not None else "access to"
            raise UserError(
                f"attention={implementation!r} has no {what} attention probabilities: set"
                " attention='einsum'."
            )
        heads = query_BSHK, key_BTHK, value_BTHK
        if implementation == "dot_product":
            return jax.nn.dot_product_attention(*heads, bias=mask.bias, implementation="xla"), None
        if implementation == "cudnn":
            return cudnn_attention(*heads, mask), None
        if has_splash(query_BSHK.shape, mask):
            return splash_attention(*heads, mask), None
    # Transposed first: with einsums from and to BSHK, the forward pass takes up to twice as long on
    # CPUs.
    query_BHSK, key_BHTK, value_BHTK = (
        x.transpose(0, 2, 1, 3) for x in (query_BSHK, key_BTHK, value_BTHK)
    )
    scores_BHST = jnp.einsum(
        "bhsk,bhtk->bhst", query_BHSK, key_BHTK, preferred_element_type=jnp.float32
    )
    scores_BHST = scores_BHST / math.sqrt(query_BSHK.shape[-1]) + mask.bias
    probs_BHST = nn.softmax(scores_BHST)
    dropped_BHST = probs_BHST if dropout is None else dropout(probs_BHST)
    y_BHSK = jnp.einsum("bhst,bhtk->bhsk", dropped_BHST.astype(value_BTHK.dtype), value_BHTK)
    return y_BHSK.transpose(0, 2, 1, 3), probs_BHST if keep_probabilities else None


class SelfAttention(nn.Module):
    """Attention over all heads -> dense -> dropout, with residual sum and layer normalization.

    Attributes:
      config: the encoder's configuration.
      has_norm: False leaves the layer normalization out.
    """

    config: TransformerConfig
    has_norm: bool = True

    @nn.compact
    def __call__(
        self,
        x_BSD: jax.Array,
        mask: AttentionMask,
        rotation: Rotation | None,
        deterministic: bool,
        keep_attention: bool,
        extend: Extend | None = None,
        read_positions: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the hidden states and, if requested, the probabilities; see `bert.Block`."""
        config = self.config
        read_mask = mask if read_positions is None else mask.at_queries(read_positions)
        probs_BHST = None
        # The names determine the random bits of dropout; they are those that flax gives.
        drop_probs = Dropout(config.attention_dropout_rate, config.prng_impl, name="Dropout_0")
        drop_output = Dropout(config.dropout_rate, config.prng_impl, name="Dropout_1")
        has_dropout = config.attention_dropout_rate > 0 and not deterministic

        def read(x: jax.Array) -> jax.Array:
            return x if read_positions is None else take_positions(x, read_positions)

        def attend(x_BSD: jax.Array) -> jax.Array:
            nonlocal probs_BHST
            if config.convolution:
                assert mask.example_ids is not None  # only caches have none
                x_BSD = Convolution(config, name="convolution")(x_BSD, mask.example_ids)

            def project(name: str, x_BSD: jax.Array) -> jax.Array:
                y_BSD = dense(config, config.hidden_size, name)(x_BSD)
                return y_BSD.reshape(*y_BSD.shape[:2], config.num_heads, config.head_dim)

            query_BSHK = project("query", read(x_BSD))
            key_BTHK, value_BTHK = project("key", x_BSD), project("value", x_BSD)
            if config.query_key_norm:
                query_BSHK = layer_norm(config, "query_norm", biases=False)(query_BSHK)
                key_BTHK = layer_norm(config, "key_norm", biases=False)(key_BTHK)
            if rotation is not None:
                turn = jax.tree.map(read, rotation)
                query_BSHK, key_BTHK = rotate(query_BSHK, turn), rotate(key_BTHK, rotation)
            if extend is not None:
                key_BTHK, value_BTHK = extend(key_BTHK, value_BTHK)
            y_BSHK, probs_BHST = attention(
                query_BSHK,
                key_BTHK,
                value_BTHK,
                read_mask,
                implementation=config.attention,
                dropout=(lambda p: drop_probs(p, deterministic)) if has_dropout else None,
                keep_probabilities=keep_attention,
            )
            y_BSD = y_BSHK.reshape(*y_BSHK.shape[:2], config.hidden_size)
            y_BSD = dense(config, config.hidden_size, "output")(y_BSD)
            y_BSD = drop_output(y_BSD, deterministic)
            if config.attention == "cudnn":
                y_BSD += nan_unless_in_order(mask).astype(y_BSD.dtype)
            return y_BSD

        return residual(config, x_BSD, attend, self.has_norm, read), probs_BHST


def take_positions(x: jax.Array, positions: jax.Array) -> jax.Array:
    """x[batch, seq, ...] at int32[batch, positions] -> x[batch, positions, ...]."""
    indices = positions.reshape(*positions.shape, *[1] * (x.ndim - 2))
    return jnp.take_along_axis(x, indices, axis=1)
