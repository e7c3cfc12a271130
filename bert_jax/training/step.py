"""One update, one evaluation and one prediction, as pure functions; callers jit them.

A batch goes through the model in microbatches, one after the other in a scan. Every loss is a sum
over the whole global batch divided by a denominator of the whole global batch, known beforehand,
so that the gradients of the microbatches add up to exactly the gradient of the batch.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import optax

from bert_jax.models import MODELS
from bert_jax.tasks.losses import Sums, loss_names
from bert_jax.tasks.task import Batch, Task
from bert_jax.training.carry import carry_of
from bert_jax.training.state import TrainState


@flax.struct.dataclass
class StepMetrics:
    """The metrics of one update; float32[] or bool[], the same on all devices.

    Attributes:
      sums: numerators and denominators of losses and accuracies.
      gradient_norm: global norm of the gradient, before clipping.
      update_norm: global norm of the change of the parameters.
      finite: for each loss and for "gradient_norm", whether it was finite.
      applied: whether the update was applied.
    """

    sums: Sums
    gradient_norm: jax.Array
    update_norm: jax.Array
    finite: dict[str, jax.Array]
    applied: jax.Array


def train_step(
    state: TrainState,
    batch: Batch,
    keys: Mapping[str, jax.Array],
    *,
    task: Task,
    tx: optax.GradientTransformation,
    steps: int = 1,
    num_microbatches: int = 1,
    nonfinite_limit: int = 0,
) -> tuple[TrainState, StepMetrics]:
    """Returns the state after one update, and its metrics.

    Args:
      state: before the update.
      batch, keys, task, steps, num_microbatches: of `compute_gradient`.
      tx, nonfinite_limit: of `apply_gradient`.
    """
    gradient = compute_gradient(
        state, batch, keys, task=task, steps=steps, num_microbatches=num_microbatches
    )
    return apply_gradient(state, *gradient, tx=tx, nonfinite_limit=nonfinite_limit)


def compute_gradient(
    state: TrainState,
    batch: Batch,
    keys: Mapping[str, jax.Array],
    *,
    task: Task,
    steps: int = 1,
    num_microbatches: int = 1,
) -> tuple[Any, Sums, Any]:
    """Returns the gradient of the loss of a batch, its Sums, and what is carried to the next batch.

    This is the first half of an update, and all of it that depends on the shapes of the batch.

    Args:
      state: before the update.
      batch: the global batch; the model also gets `state.carry` in it, as "carry".
      keys: "dropout" and "masking"; the number of the step is folded into them.
      task: decides model, masks and losses.
      steps: updates of the run.
      num_microbatches: number of parts that the batch is split into.
    """
    masking_key = jax.random.fold_in(keys["masking"], state.step)
    batch = task.transform(masking_key, batch, state.step / steps)
    batch |= {"carry": state.carry}
    dropout_key = jax.random.fold_in(keys["dropout"], state.step)
    return _accumulate(task, state.params, batch, dropout_key, num_microbatches)


def apply_gradient(
    state: TrainState,
    grads: Any,
    sums: Sums,
    carry: Any,
    *,
    tx: optax.GradientTransformation,
    nonfinite_limit: int = 0,
) -> tuple[TrainState, StepMetrics]:
    """Returns the second half of an update: the state after it, and its metrics.

    Args:
      state: before the update.
      grads, sums, carry: of `compute_gradient`.
      tx: the optimizer, learning rate included.
      nonfinite_limit: after more consecutive non-finite updates than this, no further update is
        applied: the parameters keep their values until the host reads the metrics.
    """
    gradient_norm = optax.tree.norm(grads)
    finite = {name: jnp.isfinite(sums[name].numerator) for name in loss_names(sums)}
    finite["gradient_norm"] = jnp.isfinite(gradient_norm)
    all_finite = jnp.stack(list(finite.values())).all()
    applied = all_finite & (state.nonfinite_streak <= nonfinite_limit)

    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    update_norm = optax.tree.norm(updates)
    # Always equal to `applied`. Without the dependence on the norm, and thus on all updates, XLA
    # copies parameters and optimizer state before it writes the new ones in their place.
    after_updates = applied & ~(update_norm < 0)
    keep_old = lambda new, old: jnp.where(after_updates, new, old)  # noqa: E731
    new_state = TrainState(
        step=state.step + 1,
        params=jax.tree.map(keep_old, params, state.params),
        opt_state=jax.tree.map(keep_old, opt_state, state.opt_state),
        nonfinite_streak=jnp.where(applied, 0, state.nonfinite_streak + 1),
        carry=jax.tree.map(keep_old, carry, state.carry),
    )
    return new_state, StepMetrics(
        sums=sums,
        gradient_norm=gradient_norm,
        update_norm=update_norm,
        finite=finite,
        applied=applied,
    )


def eval_step(
    params: Any, batch: Batch, key: jax.Array, number: jax.Array, carry: Any = (), *, task: Task
) -> tuple[Sums, dict[str, jax.Array], Any]:
    """Returns the Sums of a global batch, the answers that the host reads, and what is carried.

    There is no dropout.

    Args:
      params: of the model.
      batch: the global batch.
      key: of "eval_masking"; masks depend on it and `number` alone, so that every evaluation has
        the same masks.
      number: int32[], of the batch.
      carry: from the batch before.
      task: decides model, masks, losses and answers.
    """
    batch = task.transform(jax.random.fold_in(key, number), batch) | {"carry": carry}
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    return task.losses(outputs, batch), task.answers(outputs, batch), carry_of(outputs)


def predict_step(params: Any, batch: Batch, *, task: Task) -> dict[str, jax.Array]:
    """Returns the answers for a batch without labels."""
    outputs = task.make_model().apply({"params": params}, batch, deterministic=True)
    return task.answers(outputs, batch)


def flops_per_token(task: Task, sequence_length: int) -> float:
    """Returns the FLOPs of an update per position, for rows of this length.

    Those of the large matrix products; the backward pass has twice those of the forward pass.
    """
    encoder = MODELS[task.model.name].flops_per_token(task.model, sequence_length)
    return 3 * (encoder + task.head_flops_per_token())


def _accumulate(
    task: Task, params: Any, batch: Batch, dropout_key: jax.Array, num_microbatches: int
) -> tuple[Any, Sums, Any]:
    """Returns the gradient of the loss of the whole batch, its Sums, and what is carried on."""
    model = task.make_model()
    denominators = {}
    if num_microbatches > 1:
        denominators = _denominators(task, model, params, batch, dropout_key)

    def loss_of_part(params, part, key):
        outputs = model.apply({"params": params}, part, deterministic=False, rngs={"dropout": key})
        sums = task.losses(outputs, part)
        of_batch = denominators or {name: item.denominator for name, item in sums.items()}
        loss = 0.0
        for name in loss_names(sums):
            denominator = jax.lax.stop_gradient(of_batch[name])
            denominator = jnp.where(denominator == 0, 1.0, denominator)
            loss += sums[name].numerator / (denominator / sums[name].gradient_scale)
        return loss, (sums, carry_of(outputs))

    gradient = jax.grad(loss_of_part, has_aux=True)
    if num_microbatches == 1:
        grads, (sums, carry) = gradient(params, batch, dropout_key)
        return grads, sums, carry

    def add_part(total, numbered_part):
        number, part = numbered_part
        key = jax.random.fold_in(dropout_key, number)
        grads, (sums, carry) = gradient(params, part, key)
        return jax.tree.map(jnp.add, total, (grads, sums)), carry

    parts = _split(batch, num_microbatches)
    first_key = jax.random.fold_in(dropout_key, 0)
    first_part = jax.tree.map(lambda x: x[0], parts)
    grads, (sums, first_carry) = gradient(params, first_part, first_key)
    rest = (jnp.arange(1, num_microbatches), jax.tree.map(lambda x: x[1:], parts))
    (grads, sums), carries = jax.lax.scan(add_part, (grads, sums), rest)
    return grads, sums, jax.tree.map(_join, first_carry, carries)


def _denominators(
    task: Task, model: nn.Module, params: Any, batch: Batch, key: jax.Array
) -> dict[str, jax.Array]:
    """Returns the denominators of the losses of the whole batch, without applying the model.

    They are those of outputs of NaN, which makes a denominator that depends on outputs NaN too. XLA
    removes all that only the numerators need.
    """

    def apply(params, batch, key):
        return model.apply({"params": params}, batch, deterministic=False, rngs={"dropout": key})

    def fill(like):
        is_float = jnp.issubdtype(like.dtype, jnp.floating)
        return jnp.full(like.shape, jnp.nan if is_float else 0, like.dtype)

    outputs = jax.tree.map(fill, jax.eval_shape(apply, params, batch, key))
    return {name: item.denominator for name, item in task.losses(outputs, batch).items()}


def _split(batch: Batch, num_microbatches: int) -> Batch:
    """[batch, ...] -> [microbatches, rows, ...].

    Microbatch i has the rows i, i + n, i + 2n ...: the rows of a device, which are contiguous, are
    spread over all microbatches, so that no row moves to another device.
    """

    def split(array):
        rows = array.shape[0] // num_microbatches
        return jnp.swapaxes(array.reshape(rows, num_microbatches, *array.shape[1:]), 0, 1)

    return jax.tree.map(split, dict(batch))


def _join(first: jax.Array, rest: jax.Array) -> jax.Array:
    """[rows, ...], [microbatches - 1, rows, ...] -> [batch, ...], what `_split` has split."""
    parts = jnp.swapaxes(jnp.concatenate([first[None], rest]), 0, 1)
    return parts.reshape(-1, *parts.shape[2:])
