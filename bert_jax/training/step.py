"""One training step and one evaluation step.

    train_step(state, batch, keys) -> state, metrics
        compute_gradient    masks, then model and losses for each microbatch (gradient.py)
        apply_gradient      optimizer, only if everything is finite

The functions are pure; `make_train_step` jits the first for a phase of a run.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from bert_jax.config.groups import OptimizerConfig
from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.losses import Sums, loss_names
from bert_jax.tasks.task import Batch, Task
from bert_jax.training.gradient import NO_CONSTANTS, compute_gradient, merge, num_rows, split
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState, abstract_state


@flax.struct.dataclass
class StepMetrics:
    """Metrics of one step; float32[] or bool[], the same on all devices.

    Attributes:
      sums: numerators and denominators of losses and accuracies.
      gradient_norm: global norm of the gradient, before clipping.
      update_norm: global norm of the change of the parameters; on CPUs, 0 in steps that are not
        logged.
      finite: whether each loss and "gradient_norm" was finite, by name.
      applied: whether the parameters were changed.
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
    constants: Mapping[str, Any] = NO_CONSTANTS,
    *,
    task: Task,
    tx: optax.GradientTransformation,
    steps: int = 1,
    num_microbatches: int = 1,
    log_every: int = 1,
    nonfinite_limit: int = 0,
) -> tuple[TrainState, StepMetrics]:
    """Returns the state after one step, and its metrics.

    Args:
      state: the state before.
      batch, keys, constants, task, steps, num_microbatches: see `compute_gradient`.
      tx, log_every, nonfinite_limit: see `apply_gradient`.
    """
    gradient = compute_gradient(
        state, batch, keys, constants, task=task, steps=steps, num_microbatches=num_microbatches
    )
    settings = {"tx": tx, "log_every": log_every, "nonfinite_limit": nonfinite_limit}
    return apply_gradient(state, *gradient, steps=steps, **settings)


def apply_gradient(
    state: TrainState,
    grads: Any,
    sums: Sums,
    carry: Any,
    *,
    tx: optax.GradientTransformation,
    steps: int = 1,
    log_every: int = 1,
    nonfinite_limit: int = 0,
) -> tuple[TrainState, StepMetrics]:
    """Returns the state after a step, and its metrics; the second half of a step.

    Args:
      state: the state before the step.
      grads, sums, carry: what `compute_gradient` returns.
      tx: the optimizer, learning rate included.
      steps: training steps in total.
      log_every: number of steps between logged ones; 0: only the last step is logged.
      nonfinite_limit: after more consecutive non-finite steps than this no step changes the
        parameters, until the host has read the metrics. If it is 0, a non-finite step may change
        the optimizer state: the run ends with it.
    """
    gradient_norm = optax.tree.norm(grads)
    finite = {name: jnp.isfinite(sums[name].numerator) for name in loss_names(sums)}
    finite["gradient_norm"] = jnp.isfinite(gradient_norm)
    all_finite = jnp.stack(list(finite.values())).all()
    applied = all_finite & (state.nonfinite_streak <= nonfinite_limit)

    step = state.step + 1
    is_logged = step == steps
    if log_every:
        is_logged |= step % log_every == 0
    transform = functools.partial(
        optax.with_extra_args_support(tx).update, gradient_norm=gradient_norm
    )
    with jax.named_scope("optimizer"):
        params, opt_state, update_norm = jax.lax.platform_dependent(
            (state.params, state.opt_state),
            grads,
            applied,
            is_logged,
            cpu=functools.partial(_update_in_place, transform),
            default=functools.partial(_update_and_select, transform, nonfinite_limit > 0),
        )
    keep_old = lambda new, old: jnp.where(applied, new, old)  # noqa: E731
    new_state = TrainState(
        step=step,
        params=params,
        opt_state=opt_state,
        nonfinite_streak=jnp.where(applied, 0, state.nonfinite_streak + 1),
        carry=jax.tree.map(keep_old, carry, state.carry),
    )
    return new_state, StepMetrics(sums, gradient_norm, update_norm, finite, applied)


def _update_in_place(
    transform: Callable[..., tuple[Any, Any]],
    old: tuple[Any, Any],
    grads: Any,
    applied: jax.Array,
    is_logged: jax.Array,
) -> tuple[Any, Any, jax.Array]:
    """Returns parameters, optimizer state and the norm of the update, which is 0 if not logged.

    For CPUs, where XLA computes each result in a pass of its own: moments in place of the old ones,
    then parameters from the new moments. A selection between old and new moments, or the norm
    beside the update, would make it read old moments again after the new ones are written, and
    thus copy them.
    """
    params, opt_state = old

    def update() -> tuple[Any, Any]:
        updates, new_state = transform(grads, opt_state, params)
        return optax.apply_updates(params, updates), new_state

    def norm() -> jax.Array:
        return optax.tree.norm(transform(grads, opt_state, params)[0])

    update_norm = jax.lax.cond(is_logged, norm, lambda: jnp.zeros(()))
    # Always equal to `applied`; it orders the update after the norm, which reads the old arrays.
    after_norm = applied & ~(update_norm < 0)
    return *jax.lax.cond(after_norm, update, lambda: (params, opt_state)), update_norm


def _update_and_select(
    transform: Callable[..., tuple[Any, Any]],
    keeps_state: bool,
    old: tuple[Any, Any],
    grads: Any,
    applied: jax.Array,
    is_logged: jax.Array,
) -> tuple[Any, Any, jax.Array]:
    """Returns what `_update_in_place` does, the norm in every step, for accelerators.

    There XLA computes parameters, moments and norm of an array in one pass, but not across the
    boundary of a conditional. Without `keeps_state`, a step that is not applied may change the
    optimizer state.
    """
    del is_logged
    params, opt_state = old
    updates, new_state = transform(grads, opt_state, params)
    new_params = optax.apply_updates(params, updates)
    update_norm = optax.tree.norm(updates)
    # Always equal to `applied`. Without the dependence on the norm, and thus on all updates, XLA
    # copies parameters and optimizer state before it writes the new ones in their place.
    after_updates = applied & ~(update_norm < 0)
    keep_old = lambda new, old: jnp.where(after_updates, new, old)  # noqa: E731
    if keeps_state:  # not for a run that ends: it reads and writes the moments once more
        new_state = jax.tree.map(keep_old, new_state, opt_state)
    return jax.tree.map(keep_old, new_params, params), new_state, update_norm


def eval_step(
    params: Any,
    batch: Batch,
    key: jax.Array,
    number: jax.Array,
    carry: Any = (),
    *,
    task: Task,
    num_microbatches: int = 1,
) -> tuple[Sums, dict[str, jax.Array], Any]:
    """Returns the Sums of a global batch, the answers that the host reads, and the next carry.

    There is no dropout. For losses that relate examples, the outputs of the whole batch are in
    memory at once.

    Args:
      params: the model's parameters.
      batch: the global batch.
      key: the key of "eval_masking"; masks depend on it and `number` alone, so that every
        evaluation has the same masks.
      number: int32[], the number of the batch.
      carry: the carry from the previous batch.
      task: decides model, masks, losses and answers.
      num_microbatches: number of parts that the batch is split into.
    """
    batch = task.transform(jax.random.fold_in(key, number), batch) | {"carry": carry}
    model = task.make_model()

    def apply(part):
        return model.apply({"params": params}, part, deterministic=True)

    def results(outputs, part):
        return task.all_losses(outputs, part), task.answers(outputs, part), task.carry(outputs)

    if num_microbatches == 1:
        return results(apply(batch), batch)
    parts = split(batch, num_microbatches)
    if task.couples_examples:
        return results(merge(jax.lax.map(apply, parts)), batch)
    sums, answers, carries = jax.lax.map(lambda part: results(apply(part), part), parts)
    return jax.tree.map(lambda x: x.sum(0), sums), merge(answers), merge(carries)


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """The jitted `train_step`: (state, batch, keys, constants) -> (state, metrics).

    It compiles one program for each batch shape. Labelled files have batches of several lengths;
    for them, the half that does not depend on the length is a separate program, compiled once.

    Attributes:
      first: the whole step, or `compute_gradient` alone.
      second: `apply_gradient`; None: `first` is the whole step.
    """

    first: Any
    second: Any = None

    def __call__(
        self,
        state: TrainState,
        batch: Mapping[str, jax.Array],
        keys: Mapping[str, jax.Array],
        constants: Mapping[str, Any] = NO_CONSTANTS,
    ) -> tuple[TrainState, StepMetrics]:
        results = self.first(state, batch, keys, constants)
        return self.second(state, *results) if self.second else results

    def programs(
        self, state: TrainState, batch: Any, keys: Any, constants: Any = NO_CONSTANTS
    ) -> Iterator[tuple[Any, tuple]]:
        """Yields each program and its arguments (shapes with shardings), to be lowered."""
        arguments = state, batch, keys, constants
        yield self.first, arguments
        if self.second:
            grads, sums, carry = jax.eval_shape(self.first, *arguments)
            where = jax.tree.map(lambda leaf: leaf.sharding, state)
            grads = sharding.abstract(grads, where.params)
            sums = sharding.abstract(sums, where.step)  # replicated
            yield self.second, (state, grads, sums, sharding.abstract(carry, where.carry))


def make_train_step(
    run: Run,
    phase: Phase,
    *,
    log_every: int = 0,
    batch_size: int = 0,
    warmup_steps: int | None = None,
) -> TrainStep:
    """Returns the training step of a phase.

    Args:
      run: the run.
      phase: one of its phases.
      log_every: see `apply_gradient`.
      batch_size: rows of a batch; 0: those of the phase.
      warmup_steps: None: those of the run, which are computed from its training data.
    """
    config, batch_size = run.config, batch_size or phase.batch_size
    if warmup_steps is None:
        warmup_steps = run.steps_of("optimizer.warmup", run.phases[0])
    return _jit_train_step(
        run.task_at(phase),
        config.optimizer,
        run.mesh,
        batch_size=batch_size,
        steps=run.steps,
        warmup_steps=warmup_steps,
        max_microbatches=config.num_microbatches(batch_size),
        log_every=log_every,
        nonfinite_limit=config.nonfinite_limit if config.nonfinite == "skip" else 0,
        in_two=not config.has_corpus,
    )


# Runs that differ only in the seed share their programs, since the keys are arguments.
@functools.lru_cache(maxsize=1)
def _jit_train_step(
    task: Task,
    optimizer: OptimizerConfig,
    mesh: Mesh,
    *,
    batch_size: int,
    steps: int,
    warmup_steps: int,
    max_microbatches: int,
    log_every: int,
    nonfinite_limit: int,
    in_two: bool,
) -> TrainStep:
    tx, _ = make_optimizer(optimizer, steps, warmup_steps)
    state = abstract_state(task, tx, mesh, batch_size)
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    replicated = sharding.replicated(mesh)
    of_batch = {"task": task, "steps": steps}
    of_optimizer = {"tx": tx, "log_every": log_every, "nonfinite_limit": nonfinite_limit}
    if not in_two:
        whole = in_microbatches(mesh, max_microbatches, train_step)
        whole = functools.partial(whole, **of_batch | of_optimizer)
        return TrainStep(jax.jit(whole, out_shardings=(where, replicated), donate_argnums=0))
    gradient = in_microbatches(mesh, max_microbatches, compute_gradient)
    gradient = functools.partial(gradient, **of_batch)
    update = functools.partial(apply_gradient, steps=steps, **of_optimizer)
    return TrainStep(
        jax.jit(gradient, out_shardings=(where.params, replicated, where.carry)),
        jax.jit(update, out_shardings=(where, replicated), donate_argnums=0),
    )


def in_microbatches(mesh: Mesh, count: int, step: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a step whose `num_microbatches` follows from the rows of its batch.

    Args:
      mesh: the devices, which share the rows of each microbatch evenly.
      count: maximum number of microbatches.
      step: function of (parameters or state, batch, ...) with the argument `num_microbatches`.
    """

    @functools.wraps(step)
    def with_number(state, batch, *args, **kwargs):
        parts, _ = sharding.even_parts(mesh, num_rows(batch), count)
        return step(state, batch, *args, num_microbatches=parts, **kwargs)

    return sharding.on_mesh(mesh, with_number)
