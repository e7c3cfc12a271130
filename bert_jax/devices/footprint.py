"""Bytes of arrays and of compiled programs on a device."""

from typing import Any

import jax


def peak_of_program(compiled: Any) -> int:
    """Returns the bytes of a program at its peak on each device, arguments included.

    The compiler knows them; 0 on platforms where it does not say.
    """
    found = compiled.memory_analysis()
    if found is None:
        return 0
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return found.argument_size_in_bytes + found.temp_size_in_bytes + max(0, results)


def bytes_of(tree: Any) -> int:
    """Returns the bytes of the arrays of a tree on each device, by their shardings."""
    return sum(_of_shape(x.sharding.shard_shape(x.shape), x.dtype) for x in jax.tree.leaves(tree))


def whole_bytes_of(tree: Any) -> int:
    """Returns the bytes of the arrays of a tree on all devices together, without copies."""
    return sum(_of_shape(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))


def _of_shape(shape: tuple[int, ...], dtype: Any) -> int:
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    return size


def zeros_like(tree: Any) -> Any:
    """Returns arrays of zeros with the shapes, dtypes and shardings of a tree."""
    return jax.tree.map(
        lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype, device=leaf.sharding), tree
    )
