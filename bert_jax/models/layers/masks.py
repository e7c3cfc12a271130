"""Attention masks: which positions attend to which, from positions and example ids."""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class AttentionMask:
    """Which positions attend to which.

    Attributes:
      bias: float32[batch, 1, seq, key seq], added to attention scores.
      example_ids, pattern, window: the arguments of `can_attend`, for kernels that read these
        instead of a bias; example_ids is None if the bias has another source.
      max_examples: the maximum number of examples in a row; 0 if it is not known.
      key_lengths: int32[batch], the number of tokens of each row, if all positions attend to these
        and to nothing else: one example per row and bidirectional attention. None otherwise.
    """

    bias: jax.Array
    example_ids: jax.Array | None = None
    pattern: str = flax.struct.field(default="bidirectional", pytree_node=False)
    window: int = flax.struct.field(default=0, pytree_node=False)
    max_examples: int = flax.struct.field(default=0, pytree_node=False)
    key_lengths: jax.Array | None = None

    def at_queries(self, positions: jax.Array) -> "AttentionMask":
        """Returns the mask of the queries at int32[batch, positions] and all keys."""
        bias = jnp.take_along_axis(self.bias, positions[:, None, :, None], axis=2)
        return AttentionMask(bias, key_lengths=self.key_lengths)


def make_mask(
    example_ids: jax.Array,
    position_ids: jax.Array,
    pattern: str,
    window: int,
    mask_value: float,
    max_examples: int = 0,
) -> AttentionMask:
    """Returns the attention mask of whole rows; see `can_attend` and `attention_bias`."""
    length = example_ids.shape[1]
    # A program that is exported for rows of any length keeps its window.
    if pattern == "window" and isinstance(length, int) and window >= length - 1:
        pattern = "bidirectional"
    bias = attention_bias(can_attend(example_ids, position_ids, pattern, window), mask_value)
    lengths = None
    if pattern == "bidirectional" and max_examples == 1:
        lengths = (example_ids != 0).sum(axis=1, dtype=jnp.int32)
    return AttentionMask(bias, example_ids, pattern, window, max_examples, lengths)


def cache_mask(position_ids: jax.Array, capacity: int, mask_value: float) -> AttentionMask:
    """Returns the mask of new positions over the slots of a cache.

    Attention is causal and a row has one example: a position attends to itself and earlier ones.

    Args:
      position_ids: int32[batch, seq]; position t is in slot t of the cache.
      capacity: the number of slots; those that are still empty are after every position.
      mask_value: see `attention_bias`.
    """
    allowed = jnp.arange(capacity)[None, None, None] <= position_ids[:, None, :, None]
    return AttentionMask(attention_bias(allowed, mask_value))


def can_attend(
    example_ids: jax.Array, position_ids: jax.Array, pattern: str, window: int = 0
) -> jax.Array:
    """bool[batch, 1, seq, seq]: whether a position (third axis) attends to another (fourth axis).

    Positions attend to positions of their own example only, and never to padding. With one example
    per row and pattern="bidirectional" this is, at all positions that are not padding, the key
    mask of BERT's `modeling.py`.

    Args:
      example_ids: int32[batch, seq]; 0 is padding, otherwise the number of the example in the row.
      position_ids: int32[batch, seq], within the example; any values in padding.
      pattern: `bidirectional`, all positions of the example; `causal`, the position itself and
        those before; `window`, those at most `window` positions before or after.
      window: see `pattern`.
    """
    query, key = example_ids[:, None, :, None], example_ids[:, None, None, :]
    allowed = (query == key) & (key != 0)
    if pattern == "bidirectional":
        return allowed
    distance = position_ids[:, None, :, None] - position_ids[:, None, None, :]
    if pattern == "causal":
        return allowed & (distance >= 0)
    return allowed & (jnp.abs(distance) <= window)


def attention_bias(allowed: jax.Array, mask_value: float) -> jax.Array:
    """Returns 0 where attention is allowed and `mask_value` elsewhere.

    bool[batch, 1, seq, key seq] -> float32[batch, 1, seq, key seq].
    """
    return jnp.where(allowed, 0.0, jnp.float32(mask_value))
