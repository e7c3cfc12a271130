"""What a recurrent language model carries from a batch to the next one: only ELMo's does.

Its linen module has a method `init_carry(batch_size)`, gets the carry as `batch["carry"]`, and its
outputs have it as `carry`. Other models have none of these, and their carry is (). The state has
the carry of the rows of a batch without padding, so that it is the same on any number of devices.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bert_jax.devices import sharding
from bert_jax.tasks.task import Task


def zero_carry(task: Task, batch_size: int) -> Any:
    """Returns the carry before the first batch: a tree of zeros, float32[batch_size, ...]."""
    init_carry = getattr(task.make_model(), "init_carry", None)
    return init_carry(batch_size) if init_carry else ()


def init_carry(task: Task, mesh: Mesh, batch_size: int) -> Any:
    """Returns `zero_carry` on the devices, sharded like a batch."""
    where = sharding.rows_sharding(mesh, batch_size)
    return jax.jit(lambda: zero_carry(task, batch_size), out_shardings=where)()


def with_rows(carry: Any, rows: int) -> Any:
    """Returns the carry with `rows` rows, of which those of padding, at the end, are zero."""

    def pad(leaf: jax.Array) -> jax.Array:
        missing = ((0, rows - len(leaf)), *[(0, 0)] * (leaf.ndim - 1))
        return jnp.pad(leaf, missing) if rows > len(leaf) else leaf

    return jax.tree.map(pad, carry)


def like_rows(carry: Any, before: Any) -> Any:
    """Returns the carry without the rows of padding that `with_rows` has added to `before`."""
    return jax.tree.map(lambda leaf, old: leaf[: len(old)], carry, before)


def carry_of(outputs: Any) -> Any:
    """Returns the carry after a batch from a model's outputs."""
    return getattr(outputs, "carry", ())
