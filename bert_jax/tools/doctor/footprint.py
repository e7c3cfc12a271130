"""Bytes that a run needs on each device."""

import dataclasses


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
