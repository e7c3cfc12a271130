"""What a recurrent language model carries from a batch to the next one: only ELMo's does.

Its linen module has a method `init_carry(batch_size)`, gets the carry as `batch["carry"]`, and its
outputs have it as `carry`. Other models have none of these, and their carry is ().
"""

from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.devices import sharding
from bert_jax.tasks.task import Task


def zero_carry(task: Task, batch_size: int) -> Any:
    """Returns the carry before the first batch: a tree of zeros, float32[batch_size, ...]."""
    init_carry = getattr(task.make_model(), "init_carry", None)
    return init_carry(batch_size) if init_carry else ()


def init_carry(task: Task, mesh: Mesh, batch_size: int) -> Any:
    """Returns `zero_carry` on the devices, sharded like a batch."""
    where = sharding.batch_sharding(mesh)
    return jax.jit(lambda: zero_carry(task, batch_size), out_shardings=where)()


def carry_of(outputs: Any) -> Any:
    """Returns the carry after a batch from a model's outputs."""
    return getattr(outputs, "carry", ())
