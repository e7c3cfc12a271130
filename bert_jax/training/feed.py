"""From rows to batches on the devices; a batch is a function of its update's number."""

from collections.abc import Iterator

import jax
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Batch, Rows
from bert_jax.devices import sharding
from bert_jax.models.model import AddFields


class Feed:
    """The training batches of one phase.

    Args:
      mesh: all devices.
      phase: of the run.
      rows: to train on.
      add_fields: completes a batch for the encoder, see `Run.add_fields`.
    """

    def __init__(self, mesh: Mesh, phase: Phase, rows: Rows, add_fields: AddFields):
        self._mesh = mesh
        self._phase = phase
        self._rows = rows
        self._add_fields = add_fields

    def host_batch(self, step: int) -> Batch:
        """Returns this process's rows of the batch of update number `step`."""
        number = step - self._phase.first_step
        local = sharding.local_rows(self._mesh, self._rows.batch_rows(number))
        return self._add_fields(self._rows.batch(number, *local))

    def batches(self, step: int) -> Iterator[dict[str, jax.Array]]:
        """Yields the batches from update number `step` to the end of the phase, on the devices."""
        for update in range(step, self._phase.last_step):
            size = self._rows.batch_rows(update - self._phase.first_step)
            start, _ = sharding.local_rows(self._mesh, size)
            yield sharding.shard_batch(self._mesh, self.host_batch(update), size, start)
