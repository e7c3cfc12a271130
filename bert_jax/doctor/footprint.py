"""Bytes that a run needs on a device, and that are free there."""

import dataclasses

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
