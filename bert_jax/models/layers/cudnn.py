"""Attention with cuDNN on NVIDIA GPUs, if possible without an array [batch, 1, seq, key seq].

cuDNN adds a bias to the scores and always computes its gradient as well, although masks are
constants; jax passes a boolean mask as such a bias (its gradient is left out since jax 0.11.1). So
a mask is expressed in another form where cuDNN has one:

| rows | bidirectional | causal | window |
| --- | --- | --- | --- |
| one example each | lengths of the keys | causal | mask |
| several examples, Hopper GPUs or later | ranges of positions | ranges, causal | mask |
| others, positions of a cache | mask | mask | mask |

If only some positions are queries, lengths are used where the mask has them, otherwise a mask.

Shape suffixes: B batch, S query position, T key position, H heads, K head_dim, R ranges.
"""

import functools
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.files.errors import UserError
from bert_jax.models.layers.masks import AttentionMask
from bert_jax.models.layers.on_devices import on_each_device, splits_evenly

_HOPPER = "9.0"  # compute capability; older GPUs do not support ranges


def cudnn_attention(
    query_BSHK: jax.Array,
    key_BTHK: jax.Array,
    value_BTHK: jax.Array,
    mask: AttentionMask,
    *,
    implementation: str = "cudnn",
) -> jax.Array:
    """softmax(query key^T / sqrt(head_dim)) value over the visible positions, for each head.

    Equal to `attention` at all positions that are not padding. Padding attends to the tokens of its
    row, or with ranges to padding; its values are finite.

    Args:
      query_BSHK: bfloat16[batch, seq, heads, head_dim].
      key_BTHK, value_BTHK: bfloat16[batch, key seq, heads, head_dim].
      mask: which positions attend to which.
      implementation: that of `jax.nn.dot_product_attention`; tests use `xla`.

    Returns:
      bfloat16[batch, seq, heads, head_dim].

    Raises:
      UserError: there is no cuDNN, or it does not support the sizes.
    """
    heads = [query_BSHK, key_BTHK, value_BTHK]
    batch, _, num_heads, _ = query_BSHK.shape
    attend: Any = functools.partial(_with_lengths_or_mask, implementation=implementation)
    try:
        if not splits_evenly(batch, num_heads):
            return attend(*heads, {"mask": mask.bias == 0})
        if reads_ranges(mask) and implementation == "cudnn" and _has_ranges():
            assert mask.example_ids is not None
            ranges = example_ranges(mask.example_ids, mask.max_examples)
            attend = functools.partial(_in_ranges, is_causal=mask.pattern == "causal")
            return on_each_device(attend, heads, 2, ranges)
        if is_plainly_causal(mask):
            attend = functools.partial(attend, is_causal=True)
            return on_each_device(attend, heads, 2, {})
        if mask.key_lengths is not None:
            # A softmax over nothing is NaN: a row of padding attends to its first position.
            lengths = jnp.maximum(mask.key_lengths, 1)
            return on_each_device(attend, heads, 2, {"key_value_seq_lengths": lengths})
        return on_each_device(attend, heads, 2, {"mask": mask.bias == 0})
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"attention='cudnn' is not possible here: {error} Set model.attention='einsum'."
        ) from error


def reads_ranges(mask: AttentionMask) -> bool:
    """Returns whether the mask is expressed by ranges of positions: rows of several examples."""
    return mask.example_ids is not None and mask.max_examples > 1 and mask.pattern != "window"


def is_plainly_causal(mask: AttentionMask) -> bool:
    """Returns whether each row has one example, whose positions attend to earlier ones."""
    return mask.example_ids is not None and mask.max_examples == 1 and mask.pattern == "causal"


def nan_unless_in_order(mask: AttentionMask) -> jax.Array:
    """float32[batch, 1, 1]: 0 for a row that cuDNN's forms of a mask describe, otherwise NaN.

    These are the rows of `data.batch`: at most `max_examples` examples in the order of their
    numbers, then padding. The result is added to the hidden states, since attention would be
    silently wrong.
    """
    if not (reads_ranges(mask) or is_plainly_causal(mask) or mask.key_lengths is not None):
        return jnp.zeros((1, 1, 1), jnp.float32)
    assert mask.example_ids is not None
    ids = mask.example_ids
    numbers = _with_padding_last(ids, mask.max_examples)
    is_in_order = (numbers[:, 1:] >= numbers[:, :-1]).all(axis=1)
    is_in_order &= ((ids >= 0) & (ids <= mask.max_examples)).all(axis=1)
    return jnp.where(is_in_order, 0.0, jnp.float32(jnp.nan))[:, None, None]


def example_ranges(example_ids: jax.Array, max_examples: int) -> dict[str, jax.Array]:
    """Returns the ranges of positions that the examples of each row and its padding occupy.

    They cover the row, so that no position is left without a value.

    Args:
      example_ids: int32[batch, seq], in the order of `nan_unless_in_order`.
      max_examples: the largest possible example id.

    Returns:
      int32[batch, max_examples + 1] `lengths`, and int32[batch, max_examples + 2] `offsets`, where
      each range begins; -1 for absent ranges, and in the last column of the offsets.
    """
    numbers_BS = _with_padding_last(example_ids, max_examples)
    of_range = jnp.arange(1, max_examples + 2, dtype=jnp.int32)
    lengths_BR = (numbers_BS[:, None, :] == of_range[None, :, None]).sum(axis=2, dtype=jnp.int32)
    begins_BR = jnp.cumsum(lengths_BR, axis=1, dtype=jnp.int32) - lengths_BR
    is_absent = lengths_BR == 0
    offsets_BR = jnp.where(is_absent, -1, begins_BR)
    return {
        "lengths": jnp.where(is_absent, -1, lengths_BR),
        "offsets": jnp.pad(offsets_BR, ((0, 0), (0, 1)), constant_values=-1),
    }


def _with_padding_last(example_ids: jax.Array, max_examples: int) -> jax.Array:
    """Returns the example ids, with max_examples + 1 for padding."""
    return jnp.where(example_ids == 0, max_examples + 1, example_ids)


def _with_lengths_or_mask(
    query_BSHK, key_BTHK, value_BTHK, rows, implementation, is_causal=False
) -> Any:
    return jax.nn.dot_product_attention(
        *(query_BSHK, key_BTHK, value_BTHK),
        is_causal=is_causal,
        implementation=implementation,
        **rows,
    )


def _in_ranges(query_BSHK, key_BSHK, value_BSHK, ranges, is_causal) -> Any:
    fused = _fused_attention()
    masks = fused.MaskType
    return fused.dot_product_attention(
        *(query_BSHK, key_BSHK, value_BSHK),
        q_seqlen=ranges["lengths"],
        kv_seqlen=ranges["lengths"],
        q_offsets=ranges["offsets"],
        kv_offsets=ranges["offsets"],
        scale=1 / math.sqrt(query_BSHK.shape[-1]),
        mask_type=masks.CAUSAL if is_causal else masks.NO_MASK,
    )


def _fused_attention() -> Any:
    from jax._src.cudnn import fused_attention_stablehlo

    return fused_attention_stablehlo


def _has_ranges() -> bool:
    """Returns whether jax and this GPU support ranges, which are not in jax's public API."""
    try:
        fused = _fused_attention()
        names = inspect.signature(fused.dot_product_attention).parameters
        return "q_offsets" in names and fused.check_compute_capability(_HOPPER)
    except (AttributeError, ImportError):
        return False
