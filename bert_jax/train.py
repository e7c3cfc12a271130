"""Training, from top to bottom: setting up, state, loop, phases.

Everything random is a function of (seed, purpose, step), data order included, so that a run that
was stopped anywhere goes on exactly as if it had not been.
"""

import contextlib
import importlib.metadata
import shutil
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import metrics, presets, processes, progress, sharding
from bert_jax.checkpointing import Checkpoints, has_imported_params_only
from bert_jax.config import Phase
from bert_jax.convert import source
from bert_jax.convert.parameters import initial_params
from bert_jax.data.loader import Prefetcher
from bert_jax.evaluate import SPLIT, make_evaluator
from bert_jax.experiment import Experiment, open_experiment
from bert_jax.feed import Feed
from bert_jax.reporting import Reporter
from bert_jax.state import TrainState, abstract_state, init_state
from bert_jax.step import make_train_step


def train(config: ConfigDict, workdir: str) -> TrainState:
    """Trains to the end, or until SIGTERM or SIGINT; goes on from the newest checkpoint.

    Args:
      config: as configs/base.py describes it.
      workdir: folder of the run; made if missing.

    Returns:
      The state it ended with.

    Raises:
      ValueError: for settings, data or checkpoints that cannot be used; and when a loss or gradient
        was not finite and the configuration says to stop.
    """
    if has_imported_params_only(workdir):
        raise ValueError(
            f"{workdir} holds imported parameters, not a run: start one from them with"
            f" --config.init_from={workdir} --workdir=NEW."
        )
    # ------------------------------------------------------------------ devices, data, phases
    experiment = open_experiment(config, workdir)
    screen = progress.Screen(experiment.steps, enabled=processes.is_main())
    screen.line(f"devices    {progress.describe_devices(experiment.mesh)}")
    for line in [*presets.describe(config), *describe_data(experiment)]:
        screen.line(line)

    # ------------------------------------------------------------------ state
    checkpoints = Checkpoints(
        workdir,
        keep=config.checkpoint.keep,
        keep_best=config.checkpoint.keep_best,
        best_metric=config.checkpoint.best_metric,
    )
    state, totals = restore_or_init(experiment, checkpoints, screen)
    if int(state.step) == experiment.steps:
        screen.line(f"This run is complete: all its {experiment.steps} steps were done before.")
        checkpoints.close()
        return state
    for line in progress.parameter_table(state.params):
        screen.line(line)
    if processes.is_main():
        config_lib.save(config, workdir)
        shutil.copy(experiment.manifest.vocabulary_path, workdir)

    # ------------------------------------------------------------------ loop
    reporter = Reporter(experiment, screen, state, totals)
    with (
        contextlib.closing(checkpoints),  # however it ends, the last save is brought to its end
        contextlib.closing(reporter),
        processes.StopRequest() as stop,
    ):
        for phase in experiment.phases:
            if int(state.step) < phase.last_step and not stop.granted:
                state = train_phase(experiment, phase, state, checkpoints, reporter, stop)
    if stop.granted and int(state.step) < experiment.steps:
        screen.line(
            f"Stopped by {stop.signal_name} after step {int(state.step)}, which is saved."
            " The same command goes on from here."
        )
    return state


def restore_or_init(
    experiment: Experiment, checkpoints: Checkpoints, screen: progress.Screen
) -> tuple[TrainState, metrics.Totals]:
    """The state that training begins with, and the sums since the last report."""
    config, mesh = experiment.config, experiment.mesh
    task, (tx, _) = experiment.task(experiment.phases[0]), experiment.optimizer()
    like = abstract_state(task, tx, mesh)
    # 1. The newest whole checkpoint of this run.
    if (step := checkpoints.newest_good_step()) is not None:
        check_unchanged(experiment, checkpoints.read_meta(step))
        state, meta = checkpoints.restore(step, like)
        screen.line(f"resumed    after step {step} of {experiment.steps}")
        return state, metrics.Totals(meta["totals"])
    # 2. The parameters of another run or program, with a new optimizer state.
    key = experiment.key("init")
    if config.init_from:
        params, origin = initial_params(
            config.init_from,
            like.params,
            lambda: init_state(task, tx, mesh, key).params,
            config.model.vocab_size,
        )
        for line in (*origin, f"as {source.describe(config)}"):
            screen.line(f"start      {line}")
        return init_state(task, tx, mesh, key, params), metrics.Totals()
    # 3. Random parameters.
    screen.line(f"start      from random parameters, seed {config.seed}")
    return init_state(task, tx, mesh, key), metrics.Totals()


def checkpoint_meta(experiment: Experiment, totals: metrics.Totals) -> dict[str, Any]:
    """What a checkpoint holds beside the state."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
    return {
        "config": experiment.config.to_dict(),
        "data": experiment.manifest.fingerprint,
        "totals": totals.to_json(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def check_unchanged(experiment: Experiment, meta: dict[str, Any]) -> None:
    """Refuses to go on with other settings or data than those the checkpoint was made with.

    Raises:
      ValueError: listing what differs.
    """
    changed = config_lib.differences(config_lib.from_json(meta["config"]), experiment.config)
    if meta["data"] != experiment.manifest.fingerprint:
        changed.append(f"data: {meta['data'][:12]} -> {experiment.manifest.fingerprint[:12]}")
    if changed and not experiment.config.checkpoint.allow_changes:
        raise ValueError(
            f"{experiment.workdir} was trained with other settings: {'; '.join(changed)}. Take"
            " another --workdir, or go on all the same with --config.checkpoint.allow_changes=true."
        )


def describe_data(experiment: Experiment) -> list[str]:
    """Lines of the banner about the data and the phases."""
    lines = []
    for phase in experiment.phases:
        rows = experiment.rows_of(phase)
        updates = phase.last_step - phase.first_step
        lines.append(
            f"phase      steps {phase.first_step}-{phase.last_step}: {phase.batch_size} x"
            f" {phase.sequence_length} tokens a step, {phase.max_predictions_per_seq} predictions"
            f" a sequence; {rows:,} sequences, {updates * phase.batch_size / rows:.1f} epochs"
        )
    manifest = experiment.manifest
    lines.append(
        f"data       {experiment.config.data.source} in {manifest.folder},"
        f" fingerprint {manifest.fingerprint[:12]}, {len(experiment.tokenizer.pieces):,} tokens in"
        " the vocabulary"
    )
    return lines


def train_phase(
    experiment: Experiment,
    phase: Phase,
    state: TrainState,
    checkpoints: Checkpoints,
    reporter: Reporter,
    stop: processes.StopRequest,
) -> TrainState:
    """Trains from the state's step to the end of the phase, or until a request to stop."""
    config, mesh = experiment.config, experiment.mesh
    task = experiment.task(phase)
    tx, _ = experiment.optimizer()
    train_step = jax.jit(
        make_train_step(
            task,
            tx,
            dropout_key=experiment.key("dropout"),
            masking_key=experiment.key("masking"),
            num_microbatches=phase.batch_size // (config.microbatch_size or phase.batch_size),
            nonfinite_limit=config.nonfinite_limit if config.nonfinite == "skip" else 0,
        ),
        out_shardings=(jax.tree.map(lambda x: x.sharding, state), sharding.replicated(mesh)),
        donate_argnums=0,
    )
    has_split = SPLIT in experiment.manifest.splits
    evaluator = make_evaluator(experiment, phase) if has_split else None
    every = {
        name: experiment.steps_of(f"{name}.every", phase) for name in ("log", "eval", "checkpoint")
    }

    def is_due(name: str, step: int) -> bool:
        return step == experiment.steps or (every[name] > 0 and step % every[name] == 0)

    step = int(state.step)
    feed = Feed(experiment, phase)
    with Prefetcher(lambda: feed.batches(step)) as ready:
        reporter.begin(phase, feed.host_batch)
        for batch in ready:
            state, step_metrics = train_step(state, batch)
            step += 1
            reporter.push(step, step_metrics, ready.waited)
            stopping = stop.is_set(step)
            if is_due("log", step):
                reporter.log(step)
            evaluated = {}
            if evaluator is not None and is_due("eval", step):
                evaluated = evaluator(state.params)
                reporter.report_evaluation(step, evaluated, is_last=step == experiment.steps)
            if stopping or is_due("checkpoint", step):
                reporter.drain()
                checkpoints.save(state, checkpoint_meta(experiment, reporter.totals), evaluated)
            if stopping:
                break
    reporter.drain()
    return state
