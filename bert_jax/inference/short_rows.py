"""BERT's blocks for one short row on a CPU: a column for each token, kernels first in products.

A single text is a product of each kernel and a few tokens. XLA packs the second operand of a
product into another layout first, which for x @ kernel means all parameters in each call. As
kernel.T @ x.T, with hidden states float[hidden, tokens] from the first block to the last, it packs
only the tokens: the blocks of MiniLM take half the time for 16 tokens, and as long for 128. Only
the order of sums differs from `models.bert.Stack`, so float32 results differ by about 1e-6.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.models.bert import Stack
from bert_jax.models.layers.attention import take_positions
from bert_jax.models.layers.dense import activate
from bert_jax.models.layers.masks import make_mask
from bert_jax.models.model import Encoded

# (params, batch) -> outputs.
Forward = Callable[[Any, Mapping[str, Any]], Any]
# Maximum length, padding included, of a row whose blocks are computed here.
MAX_TOKENS = 64
# Fields that an encoder must have, with their values, for its blocks to be computed here.
_BLOCKS = {
    "norm": "layer_norm",
    "norm_place": "post",
    "biases": True,
    "feed_forward": "plain",
    "attention_pattern": "bidirectional",
    "reads_forward": False,
    "query_key_norm": False,
    "copy_head": False,
    "convolution": 0,
}


def fits(config: EncoderConfig) -> bool:
    """Returns whether an encoder has the blocks of BERT, in float32 or with rounded products."""
    return (
        isinstance(config, TransformerConfig)
        and config.positions != "rotary"
        and config.dtype in ("float32", "bfloat16_products")
        and all(getattr(config, name) == value for name, value in _BLOCKS.items())
    )


def is_short(batch: Mapping[str, np.ndarray]) -> bool:
    """Returns whether a batch is one short row."""
    shape = batch["input_ids"].shape
    return len(shape) == 2 and shape[0] == 1 and shape[1] <= MAX_TOKENS


def transposed(params: Any) -> Any:
    """Returns an encoder's parameters with its kernels transposed, [in, out] <-> [out, in]."""
    return unflatten(
        {
            path: x.T if path.endswith("/kernel") and x.ndim == 2 else x
            for path, x in flatten(params).items()
        }
    )


def short(forward: Forward, encoder: str) -> Forward:
    """Returns `forward` for batches of one short row, on parameters with transposed kernels.

    Args:
      forward: function that applies a model.
      encoder: name of the encoder, below which the kernels are transposed.
    """

    def compute(params: Any, batch: Mapping[str, Any]) -> Any:
        # XLA cancels this transpose against that of `_project`.
        params = {**params, encoder: transposed(params[encoder])}
        with nn.intercept_methods(_compute_stack):
            return forward(params, batch)

    return compute


def _compute_stack(call: Callable, args: Any, kwargs: Any, context: Any) -> Any:
    """Computes `Stack.__call__` here, and passes on the calls of all other methods.

    Calls with dropout, attention probabilities or caches are left to `Stack`.
    """
    stack = context.module
    if not isinstance(stack, Stack) or context.method_name != "__call__":
        return call(*args, **kwargs)
    x, batch, deterministic, keep_all, keep_attention, *cache = args
    if kwargs or not deterministic or keep_attention or any(c is not None for c in cache):
        return call(*args, **kwargs)
    config, params = stack.config, stack.variables["params"]
    mask = make_mask(
        batch["example_ids"], batch["position_ids"], "bidirectional", 0, config.mask_value
    )
    columns = [x[0].T]  # [D, S]
    for i in range(config.num_layers):
        columns.append(_block(config, params[f"layer_{i}"], columns[-1], mask.bias[0]))
    hidden = [column.T[None] for column in columns]  # [1, S, D]
    if "read_positions" in batch:
        hidden[-1] = take_positions(hidden[-1], batch["read_positions"])  # [1, P, D]
    return Encoded(hidden[-1], tuple(hidden) if keep_all else ())


def _block(config: TransformerConfig, params: Any, x: jax.Array, bias: jax.Array) -> jax.Array:
    """float32[hidden, tokens] -> the same; bias: float32[1, tokens, tokens]."""
    norm = functools.partial(_norm, config.layer_norm_epsilon)
    attention = params["attention"]
    query, key, value = (
        _project(config, attention[name], x).reshape(config.num_heads, config.head_dim, -1)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("hks,hkt->hst", query, key) / math.sqrt(config.head_dim) + bias
    y = jnp.einsum("hst,hkt->hks", nn.softmax(scores), value).reshape(x.shape)
    x = norm(attention["layer_norm"], x + _project(config, attention["output"], y))
    y = activate(config, _project(config, params["intermediate"], x))
    return norm(params["layer_norm"], x + _project(config, params["output"], y))


def _project(config: TransformerConfig, params: Any, x: jax.Array) -> jax.Array:
    """float32[in, tokens] -> float32[out, tokens]; see `layers.dense.dense`."""
    kernel = params["kernel"].T
    if config.rounds_products:
        kernel, x = kernel.astype(jnp.bfloat16), x.astype(jnp.bfloat16)
    return jnp.dot(kernel, x, preferred_element_type=jnp.float32) + params["bias"][:, None]


def _norm(epsilon: float, params: Any, x: jax.Array) -> jax.Array:
    """Normalizes columns, float32[hidden, tokens]; see `layers.norm.layer_norm`."""
    centred = x - x.mean(axis=0, keepdims=True)
    variance = jnp.square(centred).mean(axis=0, keepdims=True)
    scale = params["scale"][:, None]
    return centred * (jax.lax.rsqrt(variance + epsilon) * scale) + params["bias"][:, None]
