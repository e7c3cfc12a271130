"""Blocks in a loop over their stacked parameters, and rematerialisation."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.models.model import activation_dtype


def remat_policy(config: TransformerConfig) -> Callable[..., Any] | None:
    """Returns which intermediate results a rematerialised block stores; None: none.

    `products` stores those of kernels: they have no batch dimension, those of attention have one.
    """
    if config.remat_policy == "products":
        return jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return None


def scan_blocks(
    stack: nn.Module, block: nn.Module, x: jax.Array, args: tuple[Any, ...], keep_all: bool
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Applies the blocks of a stack in a loop, so that one of them is compiled.

    Args:
      stack: the module with the parameters "layer_0", "layer_1", ... and a `config`.
      block: an unbound block, called as block(x, *args).
      x: float[batch, seq, hidden], the embeddings.
      args: the other arguments of all blocks.
      keep_all: return the hidden states of all blocks.

    Returns:
      The embeddings and the hidden states of each block, or, without `keep_all`, of the last one
      only; and the attention probabilities of each block, if a block returns any.
    """
    config: TransformerConfig = stack.config  # pyright: ignore[reportAttributeAccessIssue]
    stored = stack.variables["params"]
    layers = [stored[f"layer_{i}"] for i in range(config.num_layers)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    key = stack.make_rng("dropout") if stack.has_rng("dropout") else None

    def step(x: jax.Array, layer: tuple[Any, jax.Array]):
        params, number = layer
        rngs = {} if key is None else {"dropout": jax.random.fold_in(key, number)}
        outputs: Any = block.apply({"params": params}, x, *args, rngs=rngs)
        x, probs, _ = outputs
        return x, (x if keep_all else None, probs)

    if config.remat:
        # In a loop, nothing can be merged with the first computation.
        step = jax.checkpoint(step, policy=remat_policy(config), prevent_cse=False)
    if config.norm_place == "post":  # a loop keeps its dtype; embeddings may be float32
        x = x.astype(activation_dtype(config))
    last, saved = jax.lax.scan(step, x, (params, jnp.arange(config.num_layers)))
    hidden, probs = (() if values is None else tuple(values) for values in saved)
    return [x, *(hidden or [last])], list(probs)
