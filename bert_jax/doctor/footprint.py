"""Bytes of arrays and of compiled programs on a device, and of the memory that is free there."""

import dataclasses
from typing import Any

import jax

from bert_jax.doctor.machine import available_memory, device_memory


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of memory of each device.

    Attributes:
      state: parameters, optimizer state and what is carried.
      step: an update at its peak, the state included.
      checkpoint: the state on disk, of all devices together.
    """

    state: int
    step: int
    checkpoint: int


def free_memory() -> int:
    """Returns the bytes that each device of this process can have; CPUs share the machine's."""
    return device_memory() or available_memory() // jax.local_device_count()


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
