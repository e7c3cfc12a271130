"""What the training step asks of a task: a few pure methods."""

from collections.abc import Mapping
from typing import Any, Protocol

import flax.linen as nn
import jax

from bert_jax.objectives import Sums

Batch = Mapping[str, jax.Array]


class Task(Protocol):
    """A frozen dataclass that knows model, masks and losses; it holds no arrays."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """Names of the Sums that are losses: the loss is the sum of numerator / denominator."""
        ...

    def make_model(self) -> nn.Module:
        """The linen module (batch, deterministic) -> outputs."""
        ...

    def example_batch(self) -> dict[str, jax.Array]:
        """A small batch of the right form, for shapes and initial parameters."""
        ...

    def transform(self, key: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        """Random work on the batch that belongs on the device, such as masks."""
        ...

    def denominators(self, batch: Batch) -> dict[str, jax.Array]:
        """float32[] for each loss term, from the whole (transformed) global batch."""
        ...

    def objective(self, outputs: Any, batch: Batch) -> Sums:
        """Losses and accuracies of a batch or of a part of it, as sums."""
        ...
