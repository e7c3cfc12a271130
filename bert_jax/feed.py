"""From rows to batches on the devices; a batch is a function of its update's number."""

from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.config import Phase

# (number of the batch, first row, row behind the last) -> these rows of the global batch.
ReadRows = Callable[[int, int, int], dict[str, np.ndarray]]


class Feed:
    """The training batches of one phase."""

    def __init__(self, mesh: Mesh, phase: Phase, read: ReadRows):
        self._mesh = mesh
        self._phase = phase
        self._read = read
        self._start, self._stop = sharding.local_rows(mesh, phase.batch_size)

    def host_batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the batch of update number `step`."""
        return self._read(step - self._phase.first_step, self._start, self._stop)

    def batches(self, step: int) -> Iterator[dict[str, jax.Array]]:
        """The batches from update number `step` to the end of the phase, on the devices."""
        for number in range(step, self._phase.last_step):
            yield sharding.shard_batch(
                self._mesh, self.host_batch(number), self._phase.batch_size, self._start
            )
