"""Which positions attend to which, as a function of positions and example ids."""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Visible:
    """Which positions attend to which.

    Attributes:
      bias: float32[batch, 1, seq, key seq], added to attention scores.
      example_ids, mask, window: what the bias follows from, see `is_visible`, for implementations
        that do without it; example_ids is None if it follows from something else.
    """

    bias: jax.Array
    example_ids: jax.Array | None = None
    mask: str = flax.struct.field(default="bidirectional", pytree_node=False)
    window: int = flax.struct.field(default=0, pytree_node=False)


def make_visible(
    example_ids: jax.Array, position_ids: jax.Array, mask: str, window: int, mask_value: float
) -> Visible:
    """Returns what positions attend to; the arguments are those of the two functions below."""
    bias = attention_bias(is_visible(example_ids, position_ids, mask, window), mask_value)
    return Visible(bias, example_ids, mask, window)


def is_visible(
    example_ids: jax.Array, position_ids: jax.Array, mask: str, window: int = 0
) -> jax.Array:
    """bool[batch, 1, seq, seq]: whether a position (third dimension) attends to another (fourth).

    Positions attend to positions of their own example only, and never to padding. With one example
    in a row and mask="bidirectional" this is, at all positions that are not padding, the mask
    of the keys in BERT's `modeling.py`.

    Args:
      example_ids: int32[batch, seq]; 0 is padding, otherwise the number of the example in the row.
      position_ids: int32[batch, seq], within the example; padding may have any.
      mask: `bidirectional`, all positions of the example; `causal`, the position itself and
        those before; `window`, those at most `window` positions before or after.
      window: see `mask`.
    """
    query, key = example_ids[:, None, :, None], example_ids[:, None, None, :]
    visible = (query == key) & (key != 0)
    if mask == "bidirectional":
        return visible
    distance = position_ids[:, None, :, None] - position_ids[:, None, None, :]
    if mask == "causal":
        return visible & (distance >= 0)
    return visible & (jnp.abs(distance) <= window)


def is_cached_visible(position_ids: jax.Array, capacity: int) -> jax.Array:
    """bool[batch, 1, seq, capacity]: whether a position attends to a slot of a cache.

    With mask="causal" and one example in a row, a position attends to itself and those before.

    Args:
      position_ids: int32[batch, seq]; position t is in slot t of the cache.
      capacity: slots of the cache; those that are not filled yet are after every position.
    """
    return jnp.arange(capacity)[None, None, None] <= position_ids[:, None, :, None]


def attention_bias(visible: jax.Array, mask_value: float) -> jax.Array:
    """What is added to attention scores: 0 where visible, otherwise `mask_value`.

    bool[batch, 1, seq, seq] -> float32[batch, 1, seq, seq].
    """
    return jnp.where(visible, 0.0, jnp.float32(mask_value))
