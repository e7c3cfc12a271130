"""Attention on TPUs without storing probabilities: jax's splash kernel, over a mesh.

Shape suffixes: B batch, S position, H heads, K head_dim.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models.layers.masks import AttentionMask
from bert_jax.models.layers.on_devices import on_each_device, splits_evenly

# Rows are processed in blocks, whose lengths are multiples of the number of lanes of a TPU.
_BLOCKS = (512, 256, 128)


def has_splash(shape: tuple[int, ...], mask: AttentionMask) -> bool:
    """Returns whether `splash_attention` can be applied, on the devices of the mesh in use.

    They must be TPUs; rows a multiple of 128 tokens, one as long as another; and the mesh must
    split the batch and the heads evenly.

    Args:
      shape: shape of the queries, (batch, seq, heads, head_dim).
      mask: which positions attend to which.
    """
    batch, length, heads, _ = shape
    fits = length % _BLOCKS[-1] == 0 and splits_evenly(batch, heads)
    return fits and mask.example_ids is not None and _on_tpu()


def splash_attention(
    query_BSHK: jax.Array,
    key_BSHK: jax.Array,
    value_BSHK: jax.Array,
    mask: AttentionMask,
    *,
    interpret: bool = False,
) -> jax.Array:
    """softmax(query key^T / sqrt(head_dim)) value over the visible positions, for each head.

    Scores and softmax are float32 and never leave the chip. Equal to `attention` at all positions
    that are not padding; padding attends to padding.

    Args:
      query_BSHK, key_BSHK, value_BSHK: float[batch, seq, heads, head_dim].
      mask: which positions attend to which. The tokens of an example are contiguous in a row.
      interpret: run the kernel step by step, without a TPU.

    Returns:
      float[batch, seq, heads, head_dim].
    """
    # Scaled in float32: 1 / sqrt(head_dim) is rarely a number of bfloat16.
    scaled = query_BSHK.astype(jnp.float32) / math.sqrt(query_BSHK.shape[-1])
    query_BSHK = scaled.astype(query_BSHK.dtype)
    heads_BHSK = [x.transpose(0, 2, 1, 3) for x in (query_BSHK, key_BSHK, value_BSHK)]
    attend: Any = functools.partial(
        _on_a_device, pattern=mask.pattern, window=mask.window, interpret=interpret
    )
    return on_each_device(attend, heads_BHSK, 1, mask.example_ids).transpose(0, 2, 1, 3)


def _on_a_device(query_BHSK, key_BHSK, value_BHSK, ids_BS, pattern, window, interpret) -> Any:
    # TPU kernels are imported only where they are used.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    _, heads, length, _ = query_BHSK.shape
    square = (length, length)
    # Within an example, the distance between two positions is that of their places in the row.
    of_head = {
        "bidirectional": lambda: masks.FullMask(square),
        "causal": lambda: masks.CausalMask(square),
        "window": lambda: masks.LocalMask(square, (window, window), 0),
    }[pattern]
    block = next(size for size in _BLOCKS if length % size == 0)
    kernel = kernels.make_splash_mha(
        masks.MultiHeadMask([of_head() for _ in range(heads)]),
        block_sizes=kernels.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    segments = kernels.SegmentIds(ids_BS, ids_BS)
    return jax.vmap(kernel)(query_BHSK, key_BHSK, value_BHSK, segments)


def _on_tpu() -> bool:
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    if device is None:
        return jax.default_backend() == "tpu"
    return device.device_kind.startswith("TPU")
