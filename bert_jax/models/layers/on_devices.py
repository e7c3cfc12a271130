"""Attention kernels over a mesh: XLA cannot split a kernel over devices by itself."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

_ROWS = ("data", "fsdp")


def splits_evenly(batch: int, heads: int) -> bool:
    """Returns whether the mesh in use splits the batch and the heads evenly."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return True
    rows = math.prod(mesh.shape[axis] for axis in _ROWS)
    return not (batch % rows or heads % mesh.shape["tensor"])


def on_each_device(
    attend: Callable[..., jax.Array], heads: list[jax.Array], heads_axis: int, rows: Any
) -> jax.Array:
    """Returns attend(*heads, rows), computed on each device of the mesh for its rows and heads.

    Args:
      attend: (query, key, value, rows) -> an array with the axes of the query.
      heads: the query, key and value, with the batch as first axis.
      heads_axis: axis of their heads.
      rows: a tree of arrays whose first axis is the batch.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return attend(*heads, rows)
    spec = PartitionSpec(_ROWS, *[None] * (heads_axis - 1), "tensor")
    attend = jax.shard_map(
        attend,
        mesh=mesh,
        in_specs=(spec, spec, spec, PartitionSpec(_ROWS)),
        out_specs=spec,
        check_vma=False,
    )
    return attend(*heads, rows)
