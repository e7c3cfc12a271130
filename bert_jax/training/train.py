"""Training, from top to bottom: open, restore or initialize, loop, finish.

Every random decision, the order of the data included, is a function of (seed, purpose, step), so
that a run that was stopped anywhere continues exactly as if it had not been.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.config import store
from bert_jax.config.fields import has_corpus
from bert_jax.config.phases import Phase
from bert_jax.devices import processes, sharding
from bert_jax.files.errors import UserError
from bert_jax.files.prefetch import Prefetcher
from bert_jax.optim.make import make_optimizer
from bert_jax.optim.settings import OptimizerConfig
from bert_jax.tasks.task import Task
from bert_jax.training import metrics
from bert_jax.training.carry import init_carry
from bert_jax.training.checkpoints import Checkpoints, has_imported_params_only
from bert_jax.training.evaluate import make_evaluator, write_results
from bert_jax.training.feed import Feed
from bert_jax.training.initial import check_source
from bert_jax.training.listener import Listener
from bert_jax.training.open import open_run
from bert_jax.training.patience import Patience
from bert_jax.training.reporting import Reporter
from bert_jax.training.resume import checkpoint_meta, record_start, restore_or_init
from bert_jax.training.run import Run, make_task_data, optimizer_config, save_to_workdir
from bert_jax.training.state import TrainState, abstract_state
from bert_jax.training.step import StepMetrics, apply_gradient, compute_gradient, train_step


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns.

    Attributes:
      run: the run, with data and tokenizer.
      state: the last state.
      metrics: as `metrics.history` returns them: `metrics["train"]["loss"]` is an array.
      is_complete: whether all steps were done, or early stopping ended the run; False: it was
        stopped, and the same call resumes it.
    """

    run: Run
    state: TrainState
    metrics: dict[str, dict[str, np.ndarray]]
    is_complete: bool


def train(config: ConfigDict, workdir: str, *, listener: Listener | None = None) -> TrainResult:
    """Trains to the end, or until SIGTERM or SIGINT; resumes from the newest checkpoint.

    Args:
      config: as bert_jax/config/defaults.py describes it.
      workdir: folder of the run; created if missing.
      listener: receives progress, metrics and messages in process 0.

    Raises:
      UserError: for settings, data or checkpoints that cannot be used; and when a loss or gradient
        was not finite and the configuration says to abort.
    """
    if listener is None or not processes.is_main():
        listener = Listener()
    # ---------------------------------------------------------------- open: devices, data, phases
    if has_imported_params_only(workdir):
        raise UserError(
            f"{workdir} holds imported parameters, not a run: start one from them with"
            f" --config.init_from={workdir} --workdir=NEW."
        )
    make_task_data(config)  # reports invalid settings before weights are read
    if config.init_from and not store.has_begun(config, workdir):
        check_source(config)
    run = open_run(config, workdir)
    listener.opened(run)

    # ---------------------------------------------------------------- restore or initialize
    checkpoints = Checkpoints(
        workdir,
        keep=config.checkpoint.keep,
        keep_best=config.checkpoint.keep_best,
        best_metric=config.checkpoint.best_metric,
    )
    state, meta = restore_or_init(run, checkpoints, listener)
    step = int(state.step)
    if step == run.steps or meta.get("ended_early"):
        how = f"it ended early, after {step} of {run.steps} steps"
        if not meta.get("ended_early"):
            how = f"all its {step} steps were done before"
        listener.line(f"This run is complete: {how}.")
        with contextlib.closing(checkpoints):
            report_chosen(run, checkpoints, listener)
        return TrainResult(run, state, metrics.history(workdir), True)
    listener.started(run, state)
    if processes.is_main():
        save_to_workdir(run)
        record_start(run, step)

    # ---------------------------------------------------------------- loop
    evaluations = metrics.read_evaluations(workdir, step)
    patience = Patience(config.eval.patience, config.checkpoint.best_metric, evaluations)
    reporter = Reporter(run, listener, state, metrics.Totals(meta.get("totals")))
    with (
        contextlib.closing(checkpoints),  # waits for the last save, however the loop ends
        contextlib.closing(listener),
        contextlib.closing(reporter),
        processes.StopRequest() as stop,
    ):
        for phase in run.phases:
            if int(state.step) < phase.last_step and not (stop.granted or patience.is_over):
                state = train_phase(run, phase, state, checkpoints, reporter, patience, stop)

    # ---------------------------------------------------------------- finish
    if is_complete := int(state.step) == run.steps or patience.is_over:
        report_chosen(run, checkpoints, listener)
    else:
        listener.line(
            f"Stopped by {stop.signal_name} after step {int(state.step)}, which is saved."
            " The same command resumes from here."
        )
    return TrainResult(run, state, metrics.history(workdir), is_complete)


def train_phase(
    run: Run,
    phase: Phase,
    state: TrainState,
    checkpoints: Checkpoints,
    reporter: Reporter,
    patience: Patience,
    stop: processes.StopRequest,
) -> TrainState:
    """Trains to the end of the phase, or until patience or a request to stop ends it."""
    config = run.config
    warmup = run.steps_of("optimizer.warmup", run.phases[0])
    step_function = step_of_phase(run, phase, phase.batch_size, warmup)
    keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}
    evaluate = make_evaluator(run, phase)
    every = {name: run.steps_of(f"{name}.every", phase) for name in ("log", "eval", "checkpoint")}

    def is_due(name: str, step: int) -> bool:
        return step == run.steps or (every[name] > 0 and step % every[name] == 0)

    step = int(state.step)
    if step == phase.first_step:  # its rows continue none of the phase before
        carry = init_carry(run.task_at(phase), run.mesh, phase.batch_size)
        state = dataclasses.replace(state, carry=carry)
    feed = Feed(run.mesh, phase, run.training_rows(phase), run.add_fields)
    with Prefetcher(lambda: feed.batches(step)) as batches:
        reporter.begin(phase, feed.host_batch)
        for batch in batches:
            state, step_metrics = step_function(state, batch, keys)
            step += 1
            reporter.push(step, step_metrics, batches.waited, batch["input_ids"].shape)
            stopping = stop.is_set(step)
            if is_due("log", step):
                reporter.log(step)
            values, is_best = {}, False
            if evaluate is not None and is_due("eval", step):
                reporter.pause()
                evaluation = evaluate(state.params)
                values, uses_best = evaluation.values, config.checkpoint.use == "best"
                is_best = patience.add(values) and uses_best
                is_last = patience.is_over or step == run.steps
                is_chosen = is_best or not uses_best
                reporter.report_evaluation(step, evaluation, is_last=is_last, is_chosen=is_chosen)
            if stopping or patience.is_over or is_best or is_due("checkpoint", step):
                reporter.sync(step)  # a checkpoint never outlives the metrics before it
                meta = checkpoint_meta(run, reporter.totals, patience.is_over)
                checkpoints.save(state, meta, values)
            if stopping or patience.is_over:
                break
    reporter.drain()
    return state


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """`train_step` as one or two programs, which are compiled once for each shape of a batch.

    Attributes:
      programs: (state, batch, keys) -> (state, metrics); or (state, batch, keys) -> gradient, and
        (state, *gradient) -> (state, metrics), which all shapes have in common.
    """

    programs: tuple[Any, ...]

    def __call__(
        self, state: TrainState, batch: Mapping[str, jax.Array], keys: Mapping[str, jax.Array]
    ) -> tuple[TrainState, StepMetrics]:
        first, *second = self.programs
        results = first(state, batch, keys)
        return second[0](state, *results) if second else results


def step_of_phase(run: Run, phase: Phase, batch_size: int, warmup: int) -> TrainStep:
    """Returns the update of a phase, jitted.

    Args:
      run, phase: of the update.
      batch_size: rows of its batches, which `num_microbatches` divides.
      warmup: updates.
    """
    config = run.config
    return jitted_train_step(
        run.task_at(phase),
        batch_size,
        optimizer_config(config),
        run.steps,
        warmup,
        num_microbatches(config, batch_size),
        config.nonfinite_limit if config.nonfinite == "skip" else 0,
        run.mesh,
        in_two=not has_corpus(config),  # whose batches have several lengths
    )


def num_microbatches(config: ConfigDict, batch_size: int) -> int:
    """Returns the parts of `config.microbatch_size` rows of a batch; 1 if it has no whole ones."""
    size = config.microbatch_size
    return batch_size // size if size and batch_size % size == 0 else 1


@functools.lru_cache(maxsize=1)
def jitted_train_step(
    task: Task,
    batch_size: int,
    optimizer: OptimizerConfig,
    steps: int,
    warmup_steps: int,
    num_microbatches: int,
    nonfinite_limit: int,
    mesh: Mesh,
    in_two: bool = False,
) -> TrainStep:
    """Returns `train_step`, jitted.

    Runs that differ in nothing but the seed share it, since the keys are arguments. With `in_two`,
    the second half of an update is a program by itself.
    """
    tx, _ = make_optimizer(optimizer, steps, warmup_steps)
    state = abstract_state(task, tx, mesh, batch_size)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    of_batch = {"task": task, "steps": steps, "num_microbatches": num_microbatches}
    of_update = {"tx": tx, "nonfinite_limit": nonfinite_limit}
    where = shardings, sharding.replicated(mesh)
    if not in_two:
        step = functools.partial(sharding.on_mesh(mesh, train_step), **of_batch | of_update)
        return TrainStep((jax.jit(step, out_shardings=where, donate_argnums=0),))
    compute = jax.jit(
        functools.partial(sharding.on_mesh(mesh, compute_gradient), **of_batch),
        out_shardings=(shardings.params, where[1], shardings.carry),
    )
    update = jax.jit(
        functools.partial(apply_gradient, **of_update), out_shardings=where, donate_argnums=0
    )
    return TrainStep((compute, update))


def report_chosen(run: Run, checkpoints: Checkpoints, listener: Listener) -> None:
    """Reports which checkpoint is evaluated, predicts and is exported; writes its results.json.

    A run on a corpus writes results.json in --mode=evaluate, unless the best checkpoint is used.
    """
    use = run.config.checkpoint.use
    if has_corpus(run.config) and use != "best":
        return
    checkpoints.wait()
    step = checkpoints.chosen_step(use)
    if processes.is_main() and (values := checkpoints.metrics_of(step)):
        listener.chosen(run, step, values)
        write_results(run, step, values)
