"""The gradient of a batch, in microbatches.

A batch goes through the model in microbatches, one after the other in a scan. Every loss is a sum
over the whole global batch divided by a denominator of the whole global batch, known beforehand,
so that the gradients of the microbatches add up to exactly the gradient of the batch. Losses that
relate the examples of a batch to each other are computed from the outputs of all microbatches
(`_cached_gradient`). All microbatches have the same random keys: each draws its part of the random
bits of the whole batch (`dropout.part_of_batch`), so their number does not affect the result.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models.layers.dropout import part_of_batch
from bert_jax.tasks.distillation import apply_both, training_losses
from bert_jax.tasks.losses import Sums, loss_names
from bert_jax.tasks.task import Batch, Task
from bert_jax.training.state import TrainState

NO_CONSTANTS: Mapping[str, Any] = {}


def compute_gradient(
    state: TrainState,
    batch: Batch,
    keys: Mapping[str, jax.Array],
    constants: Mapping[str, Any] = NO_CONSTANTS,
    *,
    task: Task,
    steps: int = 1,
    num_microbatches: int = 1,
) -> tuple[Any, Sums, Any]:
    """Returns the gradient of the loss, the Sums of the batch, and the carry to the next batch.

    This is the first half of a step, and the only part that depends on the shapes of the batch.

    Args:
      state: the state before the step; the model gets `state.carry` as `batch["carry"]`.
      batch: the global batch; its last rows may be padding, which `state.carry` does not have.
      keys: "dropout" and "masking"; the number of the step is folded into them.
      constants: parameters that get no gradient: those of a "teacher"; see `Run.constants`.
      task: decides model, masks and losses.
      steps: training steps in total.
      num_microbatches: number of parts that the batch is split into.
    """
    masking_key = jax.random.fold_in(keys["masking"], state.step)
    rows = num_rows(batch)
    batch = task.transform(masking_key, batch, state.step / steps)
    batch = {**batch, "carry": _padded(state.carry, rows)}
    rngs = {"dropout": jax.random.fold_in(keys["dropout"], state.step)}
    model = task.make_model()

    def apply(params, part, number=0):
        with part_of_batch(number, num_microbatches, rows // num_microbatches):
            outputs = model.apply({"params": params}, part, deterministic=False, rngs=rngs)
            if task.taught:
                return apply_both(task, outputs, constants["teacher"], part)
            return outputs

    if num_microbatches > 1 and task.couples_examples:
        grads, sums = _cached_gradient(task, apply, state.params, batch, num_microbatches)
        return grads, sums, state.carry
    denominators = {}
    if num_microbatches > 1:
        denominators = _denominators(task, apply, state.params, batch)

    def loss_of_part(params, part, number=0):
        outputs = apply(params, part, number)
        sums = training_losses(task, outputs, part)
        return _loss(sums, denominators), (sums, task.carry(outputs))

    gradient = jax.grad(loss_of_part, has_aux=True)
    if num_microbatches == 1:
        grads, (sums, carry) = gradient(state.params, batch)
        return grads, sums, _without_padding(carry, state.carry)

    def add_part(total, numbered_part):
        number, part = numbered_part
        grads, (sums, carry) = gradient(state.params, part, number)
        return jax.tree.map(jnp.add, total, (grads, sums)), carry

    parts = split(batch, num_microbatches)
    first_part = jax.tree.map(lambda x: x[0], parts)
    grads, (sums, first_carry) = gradient(state.params, first_part)
    rest = (jnp.arange(1, num_microbatches), jax.tree.map(lambda x: x[1:], parts))
    (grads, sums), carries = jax.lax.scan(add_part, (grads, sums), rest)
    # [rows, ...], [microbatches - 1, rows, ...] -> [batch, ...], what `split` has split.
    carry = jax.tree.map(
        lambda first, others: merge(jnp.concatenate([first[None], others])), first_carry, carries
    )
    return grads, sums, _without_padding(carry, state.carry)


def _padded(carry: Any, rows: int) -> Any:
    """Returns the carry padded to `rows` rows, with zeros at the end."""

    def pad(leaf: jax.Array) -> jax.Array:
        missing = ((0, rows - len(leaf)), *[(0, 0)] * (leaf.ndim - 1))
        return jnp.pad(leaf, missing) if rows > len(leaf) else leaf

    return jax.tree.map(pad, carry)


def _without_padding(carry: Any, before: Any) -> Any:
    """Returns the carry without the rows that `_padded` has added to `before`."""
    return jax.tree.map(lambda leaf, old: leaf[: len(old)], carry, before)


def _loss(sums: Sums, denominators: Mapping[str, jax.Array]) -> jax.Array | float:
    """Returns the loss to minimize, of a batch or a microbatch.

    Args:
      sums: result of `training_losses`.
      denominators: the denominators for the whole batch; empty: `sums` covers the whole batch.
    """
    of_batch = denominators or {name: item.denominator for name, item in sums.items()}
    loss = 0.0
    for name in loss_names(sums):
        denominator = jax.lax.stop_gradient(of_batch[name])
        denominator = jnp.where(denominator == 0, 1.0, denominator)
        loss += sums[name].numerator / (denominator / sums[name].gradient_scale)
    return loss


def _cached_gradient(
    task: Task,
    apply: Callable[..., Any],
    params: Any,
    batch: Batch,
    num_microbatches: int,
) -> tuple[Any, Sums]:
    """Returns the gradient and the Sums of a batch whose examples the losses relate to each other.

    GradCache (Gao et al. 2021, arXiv 2101.06983): the outputs of all microbatches without their
    activations, then the gradient with respect to the outputs, then the backward pass of each
    microbatch, whose forward pass is computed again with the same dropout. Only the outputs of the
    whole batch are in memory at once; they are arrays [batch, ...].
    """
    numbered_parts = (jnp.arange(num_microbatches), split(batch, num_microbatches))

    def outputs_of(params, numbered_part):
        number, part = numbered_part
        return apply(params, part, number)

    def loss_of_outputs(outputs):
        sums = training_losses(task, outputs, batch)
        return _loss(sums, {}), sums

    _, outputs = jax.lax.scan(
        lambda _, part: (None, outputs_of(params, part)), None, numbered_parts
    )
    grads_of_outputs, sums = jax.grad(loss_of_outputs, has_aux=True)(merge(outputs))

    def add_part(total, part):
        numbered_part, grads_of_part = part
        _, backward = jax.vjp(lambda params: outputs_of(params, numbered_part), params)
        return jax.tree.map(jnp.add, total, *backward(grads_of_part)), None

    parts = (numbered_parts, split(grads_of_outputs, num_microbatches))
    grads, _ = jax.lax.scan(add_part, jax.tree.map(jnp.zeros_like, params), parts)
    return grads, sums


def _denominators(
    task: Task, apply: Callable[..., Any], params: Any, batch: Batch
) -> dict[str, jax.Array]:
    """Returns the denominators of the losses of the whole batch, without computing its outputs.

    They are computed from constant outputs. A denominator that changes with the constant depends on
    the outputs, and becomes NaN. XLA removes everything that only the numerators need.
    """

    def denominators_for(value):
        def fill(like):
            is_float = jnp.issubdtype(like.dtype, jnp.floating)
            return jnp.full(like.shape, value if is_float else 0, like.dtype)

        outputs = jax.tree.map(fill, jax.eval_shape(apply, params, batch))
        return {
            name: item.denominator for name, item in training_losses(task, outputs, batch).items()
        }

    found, *others = (denominators_for(value) for value in (jnp.nan, 1.0, -2.0))
    for other in others:  # NaN does not propagate through comparisons
        found = {name: jnp.where(x == other[name], x, jnp.nan) for name, x in found.items()}
    return found


def num_rows(batch: Batch) -> int:
    """Returns the rows of a batch, the first dimension of all its arrays."""
    return len(jax.tree.leaves(batch)[0])


def split(batch: Any, num_microbatches: int) -> Any:
    """Splits arrays: [batch, ...] -> [microbatches, rows, ...].

    Microbatch i has the rows i, i + n, i + 2n ...: the rows of a device, which are contiguous, are
    spread over all microbatches, so that no row moves to another device.
    """

    def split_array(array):
        rows = array.shape[0] // num_microbatches
        return jnp.swapaxes(array.reshape(rows, num_microbatches, *array.shape[1:]), 0, 1)

    return jax.tree.map(split_array, batch)


def merge(parts: Any) -> Any:
    """Merges the arrays that `split` has split: [microbatches, rows, ...] -> [batch, ...]."""

    def merge_array(array):
        array = jnp.swapaxes(array, 0, 1)
        return array.reshape(-1, *array.shape[2:])

    return jax.tree.map(merge_array, parts)
