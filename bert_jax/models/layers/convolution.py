"""A depthwise convolution over the positions of an example (So et al. 2021, "Primer")."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config.encoder_fields import TransformerConfig


class Convolution(nn.Module):
    """A weighted sum of neighbouring positions, with weights for each feature.

    It is initialized to the identity, so that at first the model computes the same as without it.

    Attributes:
      config: the encoder's configuration; `convolution` is the number of positions in a sum.
    """

    config: TransformerConfig

    @nn.compact
    def __call__(self, x: jax.Array, example_ids: jax.Array) -> jax.Array:
        """float[batch, seq, hidden], int32[batch, seq] -> float[batch, seq, hidden].

        Positions of other examples count as zeros, and so do later positions with `reads_forward`.
        """
        width, features = self.config.convolution, x.shape[-1]
        taps = self.param("taps", _identity, (width, features)).astype(x.dtype)
        y = x * taps[width // 2][None, None]
        for tap in range(width):
            distance = tap - width // 2
            if distance < 0 or distance > 0 and not self.config.reads_forward:
                neighbours = _shift(x, distance, 0.0)
                is_same = _shift(example_ids, distance, 0) == example_ids
                y += jnp.where(is_same[..., None], neighbours, 0.0) * taps[tap][None, None]
        return y


def _identity(key: jax.Array, shape: tuple[int, int], dtype=jnp.float32) -> jax.Array:
    del key
    return jnp.zeros(shape, dtype).at[shape[0] // 2].set(1.0)


def _shift(x: jax.Array, distance: int, fill: float) -> jax.Array:
    """Returns y[:, i] = x[:, i + distance], `fill` where there is none."""
    sides = [(0, 0)] * x.ndim
    sides[1] = (max(-distance, 0), max(distance, 0))
    start = max(distance, 0)
    return jnp.pad(x, sides, constant_values=fill)[:, start : start + x.shape[1]]
