"""From rows on disk to batches on the devices; a batch is a function of its update's number."""

from collections.abc import Iterator

import jax
import numpy as np

from bert_jax import sharding
from bert_jax.config import Phase
from bert_jax.data.loader import Loader
from bert_jax.experiment import Experiment


class Feed:
    """The training batches of one phase."""

    def __init__(self, experiment: Experiment, phase: Phase):
        self._mesh = experiment.mesh
        self._phase = phase
        rows = experiment.manifest.rows("train", phase.sequence_length)
        self._loader = Loader(rows, phase.batch_size, experiment.config.seed)
        self._start, self._stop = sharding.local_rows(self._mesh, phase.batch_size)

    def host_batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the batch of update number `step`."""
        return self._loader.batch(step - self._phase.first_step, self._start, self._stop)

    def batches(self, step: int) -> Iterator[dict[str, jax.Array]]:
        """The batches from update number `step` to the end of the phase, on the devices."""
        for number in range(step, self._phase.last_step):
            yield sharding.shard_batch(
                self._mesh, self.host_batch(number), self._phase.batch_size, self._start
            )
