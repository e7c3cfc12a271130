"""Dropout with a choice of random bit generators."""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.layers.cpu import draw_once

# Odd multipliers of `hashed_bits`: the golden ratio, two from hash functions that T. Mueller and
# C. Wellons found by search, and one of A. Appleby's.
_FACTORS = np.array([0x9E3779B9, 0x21F0AAAD, 0x735A2D97, 0x85EBCA6B], np.uint32).view(np.int32)


class Dropout(nn.Module):
    """Sets random values to zero and scales the others so that the expectation stays the same.

    The bits depend on the key "dropout" and on the path of the module: renaming a module or one of
    its parents changes them. The bits of a row depend on its number in the whole batch (the first
    axis counts rows, or several sequences of each), and not on how the batch is split.

    Attributes:
      rate: fraction of the values that are dropped, 0 <= rate < 1.
      prng_impl: generator of the random bits, seeded from the key "dropout": one of jax's, or
        `mulxor`, see `hashed_bits`.
      shared_axes: axes along which all values have the same bits.
    """

    rate: float
    prng_impl: str = "threefry2x32"
    shared_axes: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """float[...] -> float[...]."""
        if deterministic or self.rate == 0:
            return x
        # One 32-bit word for each value: the fraction that is kept is a multiple of 2**-32.
        shape = tuple(1 if axis in self.shared_axes else n for axis, n in enumerate(x.shape))
        dropped = round(self.rate * 2**32)

        def draw(key: jax.Array) -> jax.Array:
            if self.prng_impl == "mulxor":
                return hashed_bits(key, shape) >= jnp.int32(dropped - 2**31)
            return _bits_of_part(key, shape, self.prng_impl) >= jnp.uint32(dropped)

        kept = jax.lax.platform_dependent(
            self.make_rng("dropout"),
            cpu=draw if self.prng_impl == "rbg" else functools.partial(draw_once, draw, shape),
            # Without the barrier XLA for TPUs fuses the generator into the operations that use the
            # mask, and writes the key of each round to an array of the same shape as the bits.
            tpu=lambda key: jax.lax.optimization_barrier(draw(key)),
            default=draw,
        )
        return jnp.where(kept, x / (1 - self.rate), 0)


def hashed_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """int32[shape] of random bits, a hash along the last axis; only the high bits are good.

    Each row along the last axis draws four words with threefry4x32; its values are hashes of their
    positions, by multiplications, additions and xors with these words. XLA for GPUs fuses these
    operations into each use of a mask, so that no mask goes through memory. It also fuses them into
    its normalization kernels, unlike shifts of unsigned numbers (jaxlib 0.10.2). The bits are the
    same on all backends and meshes.
    """
    words = _bits_of_part(key, (shape[0], 4, *shape[1:-1], 1), "threefry4x32")
    words = jnp.moveaxis(jax.lax.bitcast_convert_type(words, jnp.int32), 1, 0)
    bits = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1) + words[0]
    bits = bits * _FACTORS[0]
    for word, factor in zip(words[1:], _FACTORS[1:], strict=True):
        bits = (bits ^ word) * factor
    return bits


@dataclasses.dataclass(frozen=True)
class _Part:
    """Rows `number`, `number` + `count`, ... of a batch, `rows` of them."""

    number: jax.Array | int
    count: int
    rows: int


_part: contextvars.ContextVar[_Part | None] = contextvars.ContextVar("part", default=None)


@contextlib.contextmanager
def part_of_batch(number: jax.Array | int, count: int, rows: int) -> Iterator[None]:
    """Declares, while a model is traced, that its batch is rows number + i * count of a whole one.

    Dropout then uses the bits of these rows in the whole batch. All parts get the same key.

    Args:
      number: int32[], below `count`.
      count: number of parts.
      rows: rows of the part.
    """
    token = _part.set(_Part(number, count, rows) if count > 1 else None)
    try:
        yield
    finally:
        _part.reset(token)


def _bits_of_part(key: jax.Array, shape: tuple[int, ...], prng_impl: str) -> jax.Array:
    """Returns the `random_bits` of the part of a batch that is traced.

    They are selected from those of the whole batch. XLA computes only the selected bits, since each
    is a function of its position; "rbg" is a single operation that computes all of them.
    """
    part = _part.get()
    if part is None:
        return random_bits(key, shape, prng_impl)
    # A row may have several sequences, such as choices, one after the other.
    whole = part.rows, part.count, shape[0] // part.rows, *shape[1:]
    bits = random_bits(key, whole, prng_impl)
    return jax.lax.dynamic_index_in_dim(bits, part.number, 1, keepdims=False).reshape(shape)


def random_bits(key: jax.Array, shape: tuple[int, ...], prng_impl: str) -> jax.Array:
    """uint32[shape] of random bits.

    Args:
      key: threefry2x32. All keys are derived with this generator: XLA fuses the arithmetic of the
        others into the computation of the bits, and would derive the key once for each value.
      shape: shape of the result.
      prng_impl: name of the generator in jax; some are faster than threefry2x32.
    """
    data = jax.random.key_data(key)
    # "threefry4x32" and "rbg" have keys of four words, "philox2x32" of one, the others of two.
    size = {"threefry4x32": 4, "rbg": 4, "philox2x32": 1}.get(prng_impl, 2)
    data = jnp.concatenate([data, data ^ jnp.uint32(0x9E3779B9)])[:size]
    return jax.random.bits(jax.random.wrap_key_data(data, impl=prng_impl), shape)
