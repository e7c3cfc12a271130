"""Positions without a table of parameters: sinusoidal embeddings and rotary attention.

Learned positions are a table of embeddings (`dense.embedding`), which the encoder adds.
"""

import jax
import jax.numpy as jnp
import numpy as np

# The longest wavelength of sinusoidal embeddings is 2 pi times this (Vaswani et al. 2017, 3.5).
BASE = 10_000.0

# (cosines, sines), float32[batch, seq, 1, head_dim / 2] each.
Rotation = tuple[jax.Array, jax.Array]


def _angles(position_ids: jax.Array, features: int, base: float) -> jax.Array:
    """Position * base**(-2i / features): int32[batch, seq] -> float32[batch, seq, features / 2]."""
    frequencies = base ** (-np.arange(0, features, 2) / features)
    return position_ids[:, :, None].astype(jnp.float32) * jnp.float32(frequencies)[None, None]


def sinusoidal(position_ids: jax.Array, features: int) -> jax.Array:
    """The position embeddings of Vaswani et al. 2017, section 3.5.

    Feature 2i of position p is sin(p * 10000**(-2i / features)), feature 2i + 1 the cosine.

    Args:
      position_ids: int32[batch, seq].
      features: even.

    Returns:
      float32[batch, seq, features].
    """
    angles = _angles(position_ids, features, BASE)
    pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return pairs.reshape(*position_ids.shape, features)


def rotation(position_ids: jax.Array, head_dim: int, base: float = BASE) -> Rotation:
    """The cosines and sines that `rotate` needs, the same for all heads.

    Args:
      position_ids: int32[batch, seq].
      head_dim: even.
      base: the longest wavelength is 2 pi times this.
    """
    angles = _angles(position_ids, head_dim, base)[:, :, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, by: Rotation) -> jax.Array:
    """Rotates queries or keys by their position (Su et al. 2021, section 3.2.2).

    Features i and i + head_dim / 2 form a complex number, which is multiplied by
    exp(1j * position * base**(-2i / head_dim)). Products of queries and keys then depend on the
    difference of their positions alone. The paper pairs neighbouring features; pairs of halves, as
    in GPT-NeoX, are the same up to the order of features and avoid strided access.

    Args:
      x: float[batch, seq, heads, head_dim].
      by: result of `rotation`.

    Returns:
      An array of the shape and dtype of `x`; the arithmetic is float32.
    """
    cos, sin = by
    real, imaginary = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = real * cos - imaginary * sin, real * sin + imaginary * cos
    # The sum of padded halves: concatenating them is slower with XLA on CPUs.
    sides, half = [(0, 0)] * (x.ndim - 1), x.shape[-1] // 2
    first, second = (
        jnp.pad(y, [*sides, place]) for y, place in zip(turned, ((0, half), (half, 0)), strict=True)
    )
    return (first + second).astype(x.dtype)
