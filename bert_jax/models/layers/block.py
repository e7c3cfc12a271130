"""The Transformer block, and a stack of them with its sharding rules and FLOPs."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.config.encoders import TransformerConfig
from bert_jax.models.layers import positions
from bert_jax.models.layers.attention import Extend, SelfAttention
from bert_jax.models.layers.cache import Cache, Extender
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.feed_forward import feed_forward
from bert_jax.models.layers.masks import (
    Visible,
    attention_bias,
    is_cached_visible,
    make_visible,
)
from bert_jax.models.layers.norm import layer_norm, residual
from bert_jax.models.model import Batch, Encoded, Rules, activation_dtype

# Kernels are [in, out]. Those that fan out are split over `tensor` by column, those that fan in by
# row, so that a sub-layer needs one sum over devices.
STACK_RULES: Rules = (
    (r"attention/(query|key|value)/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"attention/(query|key|value)/bias$", PartitionSpec("tensor")),
    (r"(^|/)(intermediate|gate)/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"(^|/)(intermediate|gate)/bias$", PartitionSpec("tensor")),
    (r"(^|/)output/kernel$", PartitionSpec("tensor", "fsdp")),
    (r"(^|/)output/bias$", PartitionSpec()),
    (r"(^|/)(layer|query|key)_norm/(bias|scale)$", PartitionSpec()),
)

# By config.remat_policy. Attention products have a batch dimension, those with kernels have none.
_POLICIES = {
    "nothing": None,
    "products": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Block(nn.Module):
    """A Transformer block.

    norm_place="post", as in BERT:

    1. query, key, value: dense
    2. attention over all heads, with dropout of the probabilities
    3. dense -> dropout -> add the input of 1 -> layer norm
    4. intermediate: dense -> activation (gated: times another dense)
    5. output: dense -> dropout -> add the input of 4 -> layer norm

    norm_place="pre": the layer norms of 3 and 5 are applied before 1 and 4 instead; the sums add
    the input before the layer norm.

    Attributes:
      config: of the stack.
      number: of the block, from 0; without `config.first_layer_norm`, the first has no first norm.
    """

    config: TransformerConfig
    number: int = 0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        visible: Visible,
        rotation: positions.Rotation | None,
        deterministic: bool,
        keep_attention: bool,
        extend: Extend | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the hidden states and, if requested, the attention probabilities.

        Args:
          x: float[batch, seq, hidden].
          visible: which positions attend to which.
          rotation: of queries and keys; None for other positions than rotary ones.
          deterministic: no dropout.
          keep_attention: return float32[batch, heads, seq, key seq] probabilities, otherwise None:
            what a rematerialised block returns is stored.
          extend: adds the keys and values of earlier positions; None: there are none.
        """
        config = self.config
        has_norm = config.first_layer_norm or self.number > 0
        x, probs = SelfAttention(config, has_norm, name="attention")(
            x, visible, rotation, deterministic, keep_attention, extend
        )
        dropout = Dropout(config.dropout_rate, config.prng_impl)
        x = residual(config, x, lambda x: dropout(feed_forward(config, x), deterministic))
        return x, probs


class Stack(nn.Module):
    """`num_layers` blocks and, with norm_place="pre", a last layer norm."""

    config: TransformerConfig

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        batch: Batch,
        deterministic: bool,
        keep_all: bool,
        keep_attention: bool,
        cache: Cache | None = None,
    ) -> Encoded:
        """Encodes embeddings.

        Args:
          x: float[batch, seq, hidden], the embeddings.
          batch: int32[batch, seq] `example_ids` and `position_ids`; see `Encoder`.
          deterministic: no dropout.
          keep_all, keep_attention: see `Encoder`.
          cache: of the positions before those of the batch, with mask="causal" and one example in a
            row; None: the batch has all positions.
        """
        config = self.config
        ids, places = batch["example_ids"], batch["position_ids"]
        if cache is None:
            visible = make_visible(
                ids, places, config.attention_pattern, config.attention_window, config.mask_value
            )
        else:
            filled = is_cached_visible(places, cache.capacity)
            visible = Visible(attention_bias(filled, config.mask_value))
        window_base = config.window_rotary_base or config.rotary_base
        rotation = self._rotation(places, window_base)
        # Of the blocks that attend to everything, where the others attend to a window.
        global_visible, global_rotation = visible, rotation
        if config.global_every:
            global_visible = make_visible(ids, places, "bidirectional", 0, config.mask_value)
            global_rotation = self._rotation(places, config.rotary_base)
        if config.scan_layers and cache is None and not self.is_initializing():
            all_hidden, attention = self._scan(
                x, visible, rotation, deterministic, keep_all, keep_attention
            )
            return self._encoded(all_hidden, attention, keep_all, keep_attention)
        # Arguments count from `self`: `deterministic` and `keep_attention` are Python bools.
        remat = config.remat and cache is None
        kept = _POLICIES[config.remat_policy]
        make_block = nn.remat(Block, static_argnums=(4, 5), policy=kept) if remat else Block
        extend = None if cache is None else Extender(cache, places, ids > 0)
        all_hidden, attention = [x], []
        for i in range(config.num_layers):
            block = make_block(config, i, name=f"layer_{i}")
            seen, turned = visible, rotation
            if config.is_global(i):
                seen, turned = global_visible, global_rotation
            x, probs = block(x, seen, turned, deterministic, keep_attention, extend)
            all_hidden.append(x)
            attention.append(probs)
        cache = extend and extend.cache()
        return self._encoded(all_hidden, attention, keep_all, keep_attention, cache)

    def _encoded(
        self,
        all_hidden: list[jax.Array],
        attention: Sequence[Any],
        keep_all: bool,
        keep_attention: bool,
        cache: Cache | None = None,
    ) -> Encoded:
        if self.config.norm_place == "pre":
            all_hidden[-1] = layer_norm(self.config, "layer_norm")(all_hidden[-1])
        return Encoded(
            all_hidden[-1],
            tuple(all_hidden) if keep_all else (),
            tuple(attention) if keep_attention else (),
            cache,
        )

    def _scan(
        self,
        x: jax.Array,
        visible: Visible,
        rotation: positions.Rotation | None,
        deterministic: bool,
        keep_all: bool,
        keep_attention: bool,
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Applies the blocks in a loop over their stacked parameters: one of them is compiled.

        The arguments are those of `Block` and `Stack`.

        Returns:
          The embeddings and the hidden states of each block, or, without `keep_all`, of the last
          one only; and the attention probabilities of each block, if requested.
        """
        config = self.config
        stored = self.variables["params"]
        layers = [stored[f"layer_{i}"] for i in range(config.num_layers)]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
        key = self.make_rng("dropout") if self.has_rng("dropout") else None
        block = Block(config, parent=None)

        def step(x: jax.Array, layer: tuple[Any, jax.Array]):
            params, number = layer
            rngs = {} if key is None else {"dropout": jax.random.fold_in(key, number)}
            x, probs = block.apply(
                {"params": params}, x, visible, rotation, deterministic, keep_attention, rngs=rngs
            )
            return x, (x if keep_all else None, probs)

        if config.remat:
            kept = _POLICIES[config.remat_policy]
            # In a loop, nothing can be merged with the first computation.
            step = jax.checkpoint(step, policy=kept, prevent_cse=False)
        if config.norm_place == "post":  # what the blocks return; embeddings may be float32
            x = x.astype(activation_dtype(config))
        numbers = jnp.arange(config.num_layers)
        last, saved = jax.lax.scan(step, x, (params, numbers))
        hidden, probs = (() if values is None else tuple(values) for values in saved)
        return [x, *(hidden or [last])], list(probs)

    def _rotation(self, places: jax.Array, base: float) -> positions.Rotation | None:
        if self.config.positions != "rotary":
            return None
        return positions.rotation(places, self.config.head_dim, base)


def flops_per_token(config: TransformerConfig, sequence_length: int) -> float:
    """FLOPs per token of a stack's matrix products in a forward pass.

    A product with a kernel [in, out] takes 2 * in * out FLOPs per token. Attention computes all
    pairs of positions, whatever the mask.

    Args:
      config: sizes.
      sequence_length: of the rows, which the work of attention grows with.
    """
    hidden, kernels = config.hidden_size, 3 if config.feed_forward == "gated" else 2
    layer = 4 * hidden**2 + kernels * hidden * config.intermediate_size
    return 2.0 * config.num_layers * (layer + 2 * hidden * sequence_length)
