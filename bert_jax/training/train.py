"""Training, from top to bottom: open, restore or initialize, loop, finish.

Every random decision, including the order of the data, is a function of (seed, purpose, step), so a
run that is stopped at any point continues exactly as if it had not been.
"""

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np

from bert_jax.config import store
from bert_jax.config.phases import Phase
from bert_jax.config.run import RunConfig
from bert_jax.devices import processes
from bert_jax.devices.profiling import Profile
from bert_jax.files.prefetch import Prefetcher
from bert_jax.tasks.auxiliary import LossFunction
from bert_jax.training import metrics
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.evaluate import make_evaluator, write_results
from bert_jax.training.feed import training_batches
from bert_jax.training.goodput import Goodput
from bert_jax.training.initial import check_source
from bert_jax.training.listener import Listener
from bert_jax.training.open import open_run
from bert_jax.training.own_batches import MakeBatch
from bert_jax.training.reporting import Reporter
from bert_jax.training.resume import (
    check_workdir,
    checkpoint_meta,
    record_start,
    restore_or_init,
)
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState, init_carry, swapped
from bert_jax.training.step import make_train_step
from bert_jax.training.workdir import read_fitted, save_to_workdir


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` returns.

    Attributes:
      run: the run, with data and tokenizer.
      state: the last state, as it was trained.
      metrics: as `metrics.history` returns them: `metrics["train"]["loss"]` is an array.
      stopped_by: name of the signal that stopped the run; empty: the run is complete.
    """

    run: Run
    state: TrainState
    metrics: dict[str, dict[str, np.ndarray]]
    stopped_by: str = ""


def train(
    config: RunConfig,
    workdir: str,
    *,
    listener: Listener | None = None,
    losses: Mapping[str, LossFunction] | None = None,
    batches: MakeBatch | None = None,
) -> TrainResult:
    """Trains to the end, or until SIGTERM or SIGINT; resumes from the newest checkpoint.

    Args:
      config: the run's configuration.
      workdir: folder of the run; created if missing.
      listener: receives progress, metrics and messages in process 0.
      losses: further losses by name, functions (outputs, batch) -> Sum; see `tasks.auxiliary`.
      batches: step, from 0 -> the batch to train on, in place of a corpus; see `own_batches`.

    Raises:
      UserError: for settings, data or checkpoints that cannot be used; and when a loss or gradient
        was not finite and the configuration says to abort.
    """
    goodput = Goodput(workdir)
    if listener is None or not processes.is_main():
        listener = Listener()
    with processes.lock(workdir, listener.line):
        check_workdir(config, workdir)
        return _train(config, workdir, listener, losses, batches, goodput)


def _train(
    config: RunConfig,
    workdir: str,
    listener: Listener,
    losses: Mapping[str, LossFunction] | None,
    batches: MakeBatch | None,
    goodput: Goodput,
) -> TrainResult:
    # ---------------------------------------------------------------- open: devices, data, phases
    if config.init_from and not store.has_begun(config.init_from, workdir):
        check_source(config)
    run = open_run(config, workdir, losses=losses, log=listener.line, batches=batches)
    profile = Profile(config.profile, workdir, run.steps, listener.line)
    _ = run.milestones  # raises if one is in words that are not counted
    listener.opened(run)

    # ---------------------------------------------------------------- restore or initialize
    checkpoints = Checkpoints(
        workdir,
        keep=config.checkpoint.keep,
        keep_best=max(config.checkpoint.keep_best, config.checkpoint.use == "best"),
        best_metric=config.best_metric,
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
        return TrainResult(run, state, metrics.history(workdir))
    listener.started(run, state)
    if processes.is_main():
        save_to_workdir(run)
        record_start(run, step)

    # ---------------------------------------------------------------- loop
    early_stopping = metrics.EarlyStopping(
        config.eval.patience,
        config.best_metric,
        metrics.read_evaluations(workdir, step),
    )
    reporter = Reporter(run, listener, state, metrics.Totals(meta.get("totals")))
    loop = Loop(checkpoints, reporter, early_stopping, goodput, profile, processes.StopRequest())
    with (
        goodput.recording(step, writes=processes.is_main()),
        contextlib.closing(checkpoints),  # waits for the last save, however the loop ends
        contextlib.closing(listener),
        contextlib.closing(reporter),
        contextlib.closing(profile),
        loop.stop as stop,
    ):
        for phase in run.phases:
            if int(state.step) < phase.last_step and not (stop.granted or early_stopping.has_ended):
                with goodput.time("training"):
                    state = train_phase(run, phase, state, loop)
        with goodput.time("checkpoints"):
            checkpoints.wait()

    # ---------------------------------------------------------------- finish
    if ended := int(state.step) == run.steps or early_stopping.has_ended:
        report_chosen(run, checkpoints, listener)
    else:
        listener.line(
            f"Stopped by {stop.signal_name} after step {int(state.step)}, which is saved."
            " The same command resumes from here."
        )
    return TrainResult(run, state, metrics.history(workdir), "" if ended else stop.signal_name)


@dataclasses.dataclass(frozen=True)
class Loop:
    """What `train_phase` reports to and consults; the same in all phases of a run."""

    checkpoints: Checkpoints
    reporter: Reporter
    early_stopping: metrics.EarlyStopping
    goodput: Goodput
    profile: Profile
    stop: processes.StopRequest


def train_phase(run: Run, phase: Phase, state: TrainState, loop: Loop) -> TrainState:
    """Trains to the end of the phase, or until early stopping or a request to stop ends it."""
    config, reporter, goodput = run.config, loop.reporter, loop.goodput
    every = {name: run.steps_of(f"{name}.every", phase) for name in ("log", "eval", "checkpoint")}
    train_steps = {
        kind: make_train_step(run, kind, log_every=every["log"])
        for kind in run.kinds_of_steps(phase)
    }
    evaluate = make_evaluator(run, phase)
    keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}

    def is_due(name: str, step: int) -> bool:
        return step == run.steps or (every[name] > 0 and step % every[name] == 0)

    step = int(state.step)
    if step == phase.first_step:  # new phase: reset the carry
        carry = init_carry(run.task_at(phase), run.mesh, phase.batch_size)
        state = dataclasses.replace(state, carry=carry)
    with goodput.time("evaluation"):  # with eval.at_start
        reporter.begin(phase, state, evaluate)
    with Prefetcher(lambda: training_batches(run, phase, step)) as batches:
        for batch in goodput.timed("data", batches):
            # -------------------------------------------------------- step
            kind = run.kind_of_step(phase, step)
            state, step_metrics = loop.profile.step(
                step + 1, train_steps[kind], state, batch, keys, run.constants
            )
            step += 1
            reporter.push(step, kind, step_metrics, batches.waited, batch["input_ids"].shape)
            stopping = loop.stop.is_set(step)
            # -------------------------------------------------------- log
            if is_due("log", step):
                reporter.log(step)
                goodput.record(step)
            # -------------------------------------------------------- evaluate
            values, is_best, fitted = {}, False, {}
            if evaluate is not None and is_due("eval", step):
                reporter.pause()
                with goodput.time("evaluation"):
                    evaluation = evaluate(swapped(state).params)
                    values, fitted = evaluation.values, evaluation.fitted
                    uses_best = config.checkpoint.use == "best"
                    is_best = loop.early_stopping.add(values) and uses_best
                    is_last = loop.early_stopping.has_ended or step == run.steps
                    reporter.report_evaluation(
                        step, evaluation, is_last=is_last, is_chosen=is_best or not uses_best
                    )
            # -------------------------------------------------------- checkpoint
            ends = stopping or loop.early_stopping.has_ended
            milestones = run.milestones.get(step, ())
            if ends or is_best or milestones or is_due("checkpoint", step):
                reporter.sync(step)  # a checkpoint never outlives the metrics before it
                meta = checkpoint_meta(run, reporter.totals, loop.early_stopping.has_ended, fitted)
                with goodput.time("checkpoints"):
                    loop.checkpoints.save(swapped(state), meta, values, milestones)
                goodput.record(step, sync=True)
            if ends:
                break
    reporter.drain()
    return state


def report_chosen(run: Run, checkpoints: Checkpoints, listener: Listener) -> None:
    """Reports which checkpoint evaluation, prediction and export use; writes its results.json.

    A run on a corpus writes results.json in --mode=evaluate, unless the best checkpoint is used.
    """
    use = run.config.checkpoint.use
    if run.config.has_corpus and use != "best":
        return
    checkpoints.wait()
    step = checkpoints.chosen_step(use)
    if processes.is_main() and (values := checkpoints.metrics_of(step)):
        listener.chosen(run, step, values)
        write_results(run, step, values, read_fitted(checkpoints, step))
