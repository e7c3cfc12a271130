"""Keys and values of the positions that a left-to-right model has already read.

With a cache, only the next tokens of a text have to be encoded. A cache is a value: the encoder's
`decode` takes one and returns another.

Shape suffixes: B batch, S new positions, T capacity, H heads, K head_dim.
"""

import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.files.errors import UserError
from bert_jax.models.model import activation_dtype


@flax.struct.dataclass
class Cache:
    """The keys and values of all layers.

    Attributes:
      layers: (keys, values) of each layer, float[batch, capacity, heads, head_dim] each; slot t
        belongs to position t.
      lengths: int32[batch], the number of stored positions of each row.
    """

    layers: tuple[tuple[jax.Array, jax.Array], ...]
    lengths: jax.Array

    @property
    def capacity(self) -> int:
        """The largest number of positions of a row."""
        return self.layers[0][0].shape[1]


class Extender:
    """Adds new keys and values to a cache, one layer after the other.

    Each layer calls it with its new keys and values and attends to what it returns. It lives for
    one call of an encoder, which remains a pure function from cache to cache.
    """

    def __init__(self, cache: Cache, position_ids: jax.Array, is_token: jax.Array):
        """Begins at the first layer.

        Args:
          cache: the earlier positions.
          position_ids: int32[batch, new positions].
          is_token: bool[batch, new positions]; padding is not stored.
        """
        self._cache, self._grown = cache, []
        self._is_token = is_token
        # A slot past the last one is dropped.
        self._slots_BS = jnp.where(is_token, position_ids, cache.capacity)

    def __call__(self, key_BSHK: jax.Array, value_BSHK: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the keys and values of all slots of the next layer."""
        slots_BS = self._slots_BS
        rows_BS = jnp.broadcast_to(jnp.arange(len(slots_BS))[:, None], slots_BS.shape)
        keys_BTHK, values_BTHK = self._cache.layers[len(self._grown)]
        layer = (
            keys_BTHK.at[rows_BS, slots_BS].set(key_BSHK, mode="drop"),
            values_BTHK.at[rows_BS, slots_BS].set(value_BSHK, mode="drop"),
        )
        self._grown.append(layer)
        return layer

    def cache(self) -> Cache:
        """Returns the cache with the new positions, after the last layer."""
        lengths = self._cache.lengths + self._is_token.sum(1, dtype=jnp.int32)
        return Cache(tuple(self._grown), lengths)


def make_cache(config: TransformerConfig, batch_size: int, capacity: int) -> Cache:
    """Returns an empty cache for `Bert.decode`.

    Args:
      config: the encoder's configuration.
      batch_size: number of rows.
      capacity: the largest number of positions of a row.

    Raises:
      UserError: positions attend to later ones, or the encoder has fewer positions than `capacity`.
    """
    if config.attention_pattern != "causal":
        raise UserError(
            f"config.model.attention_pattern={config.attention_pattern!r}: hidden states depend"
            " on later words too, so text"
            " cannot be continued word by word; that needs a model trained with"
            " attention_pattern='causal'."
        )
    if capacity > (longest := config.max_position_embeddings):
        raise UserError(
            f"{capacity} positions are more than the model's {longest}"
            " (config.model.max_position_embeddings)."
        )
    shape = (batch_size, capacity, config.num_heads, config.head_dim)

    def zeros() -> jax.Array:
        return jnp.zeros(shape, activation_dtype(config))

    layers = tuple((zeros(), zeros()) for _ in range(config.num_layers))
    return Cache(layers, jnp.zeros(batch_size, jnp.int32))
