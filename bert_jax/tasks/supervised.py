"""What the tasks that are fine-tuned share on the devices: gold labels, weights and one loss."""

import jax
import jax.numpy as jnp

from bert_jax.tasks.task import Batch


class Supervised:
    """The parts of a `FinetuningTask` that do not depend on the task."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        return ("task_loss",)

    def example_batch(self) -> dict[str, jax.Array]:
        tokens = jnp.zeros((1, 8), jnp.int32)
        names = ("input_ids", "token_type_ids", "position_ids", "example_ids")
        return {name: tokens for name in names} | {"cls_positions": jnp.zeros((1, 1), jnp.int32)}

    def transform(self, key: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        del key  # nothing is random but dropout
        return dict(batch)

    def denominators(self, batch: Batch) -> dict[str, jax.Array]:
        return {"task_loss": jnp.maximum(batch["weights"].sum(), 1.0)}
