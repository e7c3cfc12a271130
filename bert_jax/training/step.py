"""One update and one evaluation, as pure functions; train.py jits them in one visible place.

A batch goes through the model in microbatches, one after the other in a scan. Every loss is a sum
over the whole global batch divided by a denominator of the whole global batch, known beforehand,
so that the gradients of the microbatches add up to exactly the gradient of the batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from bert_jax.tasks import Task
from bert_jax.tasks.objectives import Sums
from bert_jax.training.state import TrainState

Batch = Mapping[str, jax.Array]


@flax.struct.dataclass
class StepMetrics:
    """What one update tells; everything float32[] or bool[] and the same on all devices.

    Attributes:
      sums: numerators and denominators of losses and accuracies.
      gradient_norm: global norm of the gradient, before clipping.
      update_norm: global norm of the change of the parameters.
      finite: for each loss term and for "gradient_norm", whether it was finite.
      applied: whether the update was applied.
    """

    sums: Sums
    gradient_norm: jax.Array
    update_norm: jax.Array
    finite: dict[str, jax.Array]
    applied: jax.Array


def make_train_step(
    task: Task,
    tx: optax.GradientTransformation,
    *,
    dropout_key: jax.Array,
    masking_key: jax.Array,
    num_microbatches: int = 1,
    nonfinite_limit: int = 0,
) -> Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]:
    """Returns the function (state, global batch) -> (new state, metrics).

    Args:
      task: decides model, masks and losses.
      tx: the optimizer, learning rate included.
      dropout_key, masking_key: the step's number is folded in.
      num_microbatches: parts that the batch goes through the model in.
      nonfinite_limit: once more updates in a row than this were not finite, none is applied any
        more: the parameters stay what they were until somebody looks.
    """

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        batch = task.transform(jax.random.fold_in(masking_key, state.step), batch)
        dropout = jax.random.fold_in(dropout_key, state.step)
        grads, sums = _accumulate(task, state.params, batch, dropout, num_microbatches)

        gradient_norm = optax.tree.norm(grads)
        finite = {name: jnp.isfinite(sums[name].numerator) for name in task.loss_terms}
        finite["gradient_norm"] = jnp.isfinite(gradient_norm)
        all_finite = jnp.stack(list(finite.values())).all()
        applied = all_finite & (state.nonfinite_streak <= nonfinite_limit)

        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        keep_old = lambda new, old: jnp.where(applied, new, old)  # noqa: E731
        state = TrainState(
            step=state.step + 1,
            params=jax.tree.map(keep_old, params, state.params),
            opt_state=jax.tree.map(keep_old, opt_state, state.opt_state),
            nonfinite_streak=jnp.where(applied, 0, state.nonfinite_streak + 1),
        )
        return state, StepMetrics(
            sums=sums,
            gradient_norm=gradient_norm,
            update_norm=optax.tree.norm(updates),
            finite=finite,
            applied=applied,
        )

    return train_step


def make_eval_step(task: Task, masking_key: jax.Array) -> Callable[[Any, Batch, jax.Array], Sums]:
    """Returns the function (params, global batch, number of the batch) -> Sums, without dropout.

    The masks depend on the batch's number alone, so that every evaluation asks the same questions.
    """
    model = task.make_model()

    def eval_step(params: Any, batch: Batch, number: jax.Array) -> Sums:
        batch = task.transform(jax.random.fold_in(masking_key, number), batch)
        outputs = model.apply({"params": params}, batch, deterministic=True)
        return task.objective(outputs, batch)

    return eval_step


def _accumulate(
    task: Task, params: Any, batch: Batch, dropout_key: jax.Array, num_microbatches: int
) -> tuple[Any, Sums]:
    """Gradient of the loss of the whole batch, and its Sums."""
    model = task.make_model()
    denominators = task.denominators(batch)

    def loss_of_part(params, part, key):
        outputs = model.apply({"params": params}, part, deterministic=False, rngs={"dropout": key})
        sums = task.objective(outputs, part)
        loss = sum(sums[name].numerator / denominators[name] for name in task.loss_terms)
        return loss, sums

    gradient = jax.grad(loss_of_part, has_aux=True)
    if num_microbatches == 1:
        return gradient(params, batch, dropout_key)

    def add_part(total, numbered_part):
        number, part = numbered_part
        key = jax.random.fold_in(dropout_key, number)
        return jax.tree.map(jnp.add, total, gradient(params, part, key)), None

    parts = _split(batch, num_microbatches)
    first_key = jax.random.fold_in(dropout_key, 0)
    total = gradient(params, jax.tree.map(lambda x: x[0], parts), first_key)
    rest = (jnp.arange(1, num_microbatches), jax.tree.map(lambda x: x[1:], parts))
    total, _ = jax.lax.scan(add_part, total, rest)
    return total


def _split(batch: Batch, num_microbatches: int) -> Batch:
    """[batch, ...] -> [microbatches, rows, ...].

    Microbatch i takes the rows i, i + n, i + 2n ...: a device's rows, which lie together, are
    shared out among all microbatches, so that no row has to move to another device.
    """

    def split(array):
        rows = array.shape[0] // num_microbatches
        return jnp.swapaxes(array.reshape(rows, num_microbatches, *array.shape[1:]), 0, 1)

    return jax.tree.map(split, dict(batch))
