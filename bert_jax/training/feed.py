"""From rows to batches on the devices; a batch is a function of its update's number."""

from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding

# (number of the batch, first row, row behind the last) -> these rows of the global batch.
ReadRows = Callable[[int, int, int], dict[str, np.ndarray]]


class Feed:
    """The training batches of one phase.

    Args:
      mesh: all devices.
      phase: that they are of.
      read: reads rows of a batch.
      size: number of a batch -> its rows, over all processes; not given: those of the phase.
    """

    def __init__(
        self, mesh: Mesh, phase: Phase, read: ReadRows, size: Callable[[int], int] | None = None
    ):
        self._mesh = mesh
        self._phase = phase
        self._read = read
        self._size = size or (lambda number: phase.batch_size)

    def host_batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the batch of update number `step`."""
        number = step - self._phase.first_step
        return self._read(number, *sharding.local_rows(self._mesh, self._size(number)))

    def batches(self, step: int) -> Iterator[dict[str, jax.Array]]:
        """The batches from update number `step` to the end of the phase, on the devices."""
        for update in range(step, self._phase.last_step):
            size = self._size(update - self._phase.first_step)
            start, _ = sharding.local_rows(self._mesh, size)
            yield sharding.shard_batch(self._mesh, self.host_batch(update), size, start)
