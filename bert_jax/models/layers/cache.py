"""Keys and values of the positions that a left-to-right model has already read.

With them, the next words of a text cost the work of these words only. A cache is a value: `append`
and the encoder's `decode` take one and return another.

Shape suffixes: B batch, S new positions, T capacity, H heads, K head_dim.
"""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class LayerCache:
    """The keys and values of one layer.

    Attributes:
      key_BTHK: float[batch, capacity, heads, head_dim]; slot t is that of position t.
      value_BTHK: the same of the values.
    """

    key_BTHK: jax.Array
    value_BTHK: jax.Array

    def append(
        self, key_BSHK: jax.Array, value_BSHK: jax.Array, slots_BS: jax.Array
    ) -> "LayerCache":
        """Returns the cache with new keys and values in their slots.

        Args:
          key_BSHK, value_BSHK: float[batch, new positions, heads, head_dim].
          slots_BS: int32[batch, new positions]; what has a slot past the last one is not stored.
        """
        rows_BS = jnp.broadcast_to(jnp.arange(len(slots_BS))[:, None], slots_BS.shape)
        return LayerCache(
            self.key_BTHK.at[rows_BS, slots_BS].set(key_BSHK, mode="drop"),
            self.value_BTHK.at[rows_BS, slots_BS].set(value_BSHK, mode="drop"),
        )


@flax.struct.dataclass
class Cache:
    """The keys and values of all layers.

    Attributes:
      layers: one for each layer, the first one first.
      lengths: int32[batch], positions of each row that are stored; they are 0 to length - 1.
    """

    layers: tuple[LayerCache, ...]
    lengths: jax.Array

    @property
    def capacity(self) -> int:
        """The largest number of positions of a row."""
        return self.layers[0].key_BTHK.shape[1]


class Extender:
    """Adds new keys and values to a cache, one layer after the other.

    A layer calls it with those of the new positions, and attends to what it returns. It lives as
    long as one call of an encoder, which stays a pure function from cache to cache.
    """

    def __init__(self, cache: Cache, position_ids: jax.Array, is_token: jax.Array):
        """Begins at the first layer.

        Args:
          cache: of the positions before.
          position_ids: int32[batch, new positions].
          is_token: bool[batch, new positions]; padding is not stored.
        """
        self._cache, self._grown = cache, []
        self._is_token = is_token
        self._slots_BS = jnp.where(is_token, position_ids, cache.capacity)

    def __call__(self, key_BSHK: jax.Array, value_BSHK: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the keys and values of all slots of the next layer."""
        layer = self._cache.layers[len(self._grown)].append(key_BSHK, value_BSHK, self._slots_BS)
        self._grown.append(layer)
        return layer.key_BTHK, layer.value_BTHK

    def cache(self) -> Cache:
        """Returns the cache with the new positions, after the last layer."""
        lengths = self._cache.lengths + self._is_token.sum(1, dtype=jnp.int32)
        return Cache(tuple(self._grown), lengths)


def empty_cache(
    *,
    num_layers: int,
    batch_size: int,
    capacity: int,
    num_heads: int,
    head_dim: int,
    dtype: jnp.dtype,
) -> Cache:
    """Returns an empty cache.

    Args:
      num_layers, num_heads, head_dim: of the encoder.
      batch_size: rows.
      capacity: the largest number of positions of a row.
      dtype: of the encoder's activations.
    """
    shape = (batch_size, capacity, num_heads, head_dim)
    layers = (
        LayerCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(num_layers)
    )
    return Cache(tuple(layers), jnp.zeros(batch_size, jnp.int32))
