"""Training, from top to bottom: setting up, state, loop, phases.

Everything random is a function of (seed, purpose, step), data order included, so that a run that
was stopped anywhere goes on exactly as if it had not been.
"""

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.config import presets
from bert_jax.config import settings as config_lib
from bert_jax.config.phases import Phase
from bert_jax.convert.parameters import check_source, initial_params
from bert_jax.devices import processes, sharding
from bert_jax.files.prefetch import Prefetcher
from bert_jax.formats import source
from bert_jax.tasks import Task
from bert_jax.training import metrics, progress
from bert_jax.training.checkpoints import Checkpoints, has_imported_params_only
from bert_jax.training.evaluate import write_results
from bert_jax.training.experiment import Experiment, optimizer_config
from bert_jax.training.experiments import open_experiment
from bert_jax.training.optim import OptimizerConfig, make_optimizer
from bert_jax.training.reporting import Reporter
from bert_jax.training.state import TrainState, abstract_state, init_state
from bert_jax.training.step import StepMetrics, make_train_step


def train(config: ConfigDict, workdir: str) -> TrainState:
    """As `train_or_stop`, and returns the state it ended with."""
    return train_or_stop(config, workdir)[0]


def train_or_stop(config: ConfigDict, workdir: str) -> tuple[TrainState, bool]:
    """Trains to the end, or until SIGTERM or SIGINT; goes on from the newest checkpoint.

    Args:
      config: as configs/base.py describes it.
      workdir: folder of the run; made if missing.

    Returns:
      The state it ended with, and whether that is the end of the run.

    Raises:
      ValueError: for settings, data or checkpoints that cannot be used; and when a loss or gradient
        was not finite and the configuration says to stop.
    """
    if has_imported_params_only(workdir):
        raise ValueError(
            f"{workdir} holds imported parameters, not a run: start one from them with"
            f" --config.init_from={workdir} --workdir=NEW."
        )
    if config.init_from and not source.has_begun(config, workdir):
        check_source(config)
    # ------------------------------------------------------------------ devices, data, phases
    experiment = open_experiment(config, workdir)
    screen = progress.Screen(experiment.steps, enabled=processes.is_main())
    screen.line(f"devices    {progress.describe_devices(experiment.mesh)}")
    for line in [*presets.describe(config), *experiment.describe_data()]:
        screen.line(line)

    # ------------------------------------------------------------------ state
    checkpoints = Checkpoints(
        workdir,
        keep=config.checkpoint.keep,
        keep_best=config.checkpoint.keep_best,
        best_metric=config.checkpoint.best_metric,
    )
    state, meta = restore_or_init(experiment, checkpoints, screen)
    if int(state.step) == experiment.steps or meta.get("ended_early"):
        done = f"all its {int(state.step)} steps were done before"
        if meta.get("ended_early"):
            done = f"it ended early, after {int(state.step)} of {experiment.steps} steps"
        screen.line(f"This run is complete: {done}.")
        with contextlib.closing(checkpoints):
            report_chosen(experiment, checkpoints, screen)
        return state, True
    for line in progress.parameter_table(state.params):
        screen.line(line)
    if processes.is_main():
        experiment.save_to_workdir()

    # ------------------------------------------------------------------ loop
    patience = Patience(config, workdir, int(state.step))
    reporter = Reporter(experiment, screen, state, metrics.Totals(meta.get("totals")))
    with (
        contextlib.closing(checkpoints),  # however it ends, the last save is brought to its end
        contextlib.closing(reporter),
        processes.StopRequest() as stop,
    ):
        for phase in experiment.phases:
            if int(state.step) < phase.last_step and not (stop.granted or patience.is_over):
                state = train_phase(experiment, phase, state, checkpoints, reporter, patience, stop)
    if is_complete := int(state.step) == experiment.steps or patience.is_over:
        report_chosen(experiment, checkpoints, screen)
    else:
        screen.line(
            f"Stopped by {stop.signal_name} after step {int(state.step)}, which is saved."
            " The same command goes on from here."
        )
    return state, is_complete


def restore_or_init(
    experiment: Experiment, checkpoints: Checkpoints, screen: progress.Screen
) -> tuple[TrainState, dict[str, Any]]:
    """The state that training begins with, and the `checkpoint_meta` it was saved with."""
    config, mesh = experiment.config, experiment.mesh
    task, (tx, _) = experiment.task(experiment.phases[0]), experiment.optimizer()
    like = abstract_state(task, tx, mesh)
    # 1. The newest whole checkpoint of this run.
    if (step := checkpoints.newest_good_step()) is not None:
        check_unchanged(experiment, checkpoints.read_meta(step))
        state, meta = checkpoints.restore(step, like)
        screen.line(f"resumed    after step {step} of {experiment.steps}")
        return state, meta
    # 2. The parameters of another run or program, with a new optimizer state.
    key = experiment.key("init")
    if config.init_from:
        params, origin = initial_params(
            config.init_from,
            like.params,
            lambda: init_state(task, tx, mesh, key).params,
            config.model.vocab_size,
            config_lib.made_anew(config),
        )
        for line in (*origin, f"as {source.describe(config)}"):
            screen.line(f"start      {line}")
        return init_state(task, tx, mesh, key, params), {}
    # 3. Random parameters.
    screen.line(f"start      from random parameters, seed {config.seed}")
    return init_state(task, tx, mesh, key), {}


def checkpoint_meta(
    experiment: Experiment, totals: metrics.Totals, ended_early: bool
) -> dict[str, Any]:
    """What a checkpoint holds beside the state."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
    return {
        "config": experiment.config.to_dict(),
        "data": experiment.data_fingerprint,
        "totals": totals.to_json(),
        "ended_early": ended_early,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def check_unchanged(experiment: Experiment, meta: dict[str, Any]) -> None:
    """Refuses to go on with other settings or data than those the checkpoint was made with.

    Raises:
      ValueError: listing what differs.
    """
    changed = config_lib.differences(config_lib.from_json(meta["config"]), experiment.config)
    if meta["data"] != experiment.data_fingerprint:
        changed.append(f"data: {meta['data'][:12]} -> {experiment.data_fingerprint[:12]}")
    if changed and not experiment.config.checkpoint.allow_changes:
        raise ValueError(
            f"{experiment.workdir} was trained with other settings: {'; '.join(changed)}. Take"
            " another --workdir, or go on all the same with --config.checkpoint.allow_changes=true."
        )


def train_phase(
    experiment: Experiment,
    phase: Phase,
    state: TrainState,
    checkpoints: Checkpoints,
    reporter: Reporter,
    patience: "Patience",
    stop: processes.StopRequest,
) -> TrainState:
    """Trains to the end of the phase, or until patience or a request to stop ends it."""
    config, mesh = experiment.config, experiment.mesh
    train_step = jitted_train_step(
        experiment.task(phase),
        optimizer_config(config),
        experiment.steps,
        experiment.steps_of("optimizer.warmup", experiment.phases[0]),
        phase.batch_size // (config.microbatch_size or phase.batch_size),
        config.nonfinite_limit if config.nonfinite == "skip" else 0,
        mesh,
    )
    keys = {purpose: experiment.key(purpose) for purpose in ("dropout", "masking")}
    evaluator = experiment.evaluator(phase)
    every = {
        name: experiment.steps_of(f"{name}.every", phase) for name in ("log", "eval", "checkpoint")
    }

    def is_due(name: str, step: int) -> bool:
        return step == experiment.steps or (every[name] > 0 and step % every[name] == 0)

    step = int(state.step)
    feed = experiment.feed(phase)
    with Prefetcher(lambda: feed.batches(step)) as ready:
        reporter.begin(phase, feed.host_batch)
        for batch in ready:
            state, step_metrics = train_step(state, batch, keys)
            step += 1
            reporter.push(step, step_metrics, ready.waited, batch["input_ids"].shape)
            stopping = stop.is_set(step)
            if is_due("log", step):
                reporter.log(step)
            evaluated, is_best = {}, False
            if evaluator is not None and is_due("eval", step):
                evaluated = evaluator(state.params)
                is_best = patience.add(evaluated) and config.checkpoint.use == "best"
                is_last = patience.is_over or step == experiment.steps
                reporter.report_evaluation(step, evaluated, is_last)
            if stopping or patience.is_over or is_best or is_due("checkpoint", step):
                reporter.drain()
                meta = checkpoint_meta(experiment, reporter.totals, patience.is_over)
                checkpoints.save(state, meta, evaluated)
            if stopping or patience.is_over:
                break
    reporter.drain()
    return state


@functools.lru_cache(maxsize=1)
def jitted_train_step(
    task: Task,
    optimizer: OptimizerConfig,
    steps: int,
    warmup_steps: int,
    num_microbatches: int,
    nonfinite_limit: int,
    mesh: Mesh,
) -> Callable[..., tuple[TrainState, StepMetrics]]:
    """Returns the function (state, batch, keys) -> (new state, metrics).

    The keys of `dropout` and `masking` are arguments, so that runs that differ in nothing but the
    seed are compiled once.
    """
    tx, _ = make_optimizer(optimizer, steps, warmup_steps)
    where = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(task, tx, mesh))

    def train_step(state, batch, keys):
        step = make_train_step(
            task,
            tx,
            dropout_key=keys["dropout"],
            masking_key=keys["masking"],
            num_microbatches=num_microbatches,
            nonfinite_limit=nonfinite_limit,
        )
        return step(state, batch)

    return jax.jit(train_step, out_shardings=(where, sharding.replicated(mesh)), donate_argnums=0)


class Patience:
    """Tells when evaluations have not become better for too long (config.eval.patience)."""

    def __init__(self, config: ConfigDict, workdir: str, step: int):
        """Takes up the evaluations that the run has behind it at `step`."""
        self._limit, self._name = config.eval.patience, config.checkpoint.best_metric
        self._values: list[float] = []
        for row in metrics.read_metrics(workdir):
            if row["split"] == "validation" and row["step"] <= step:
                self.add(row)

    def add(self, evaluated: Mapping[str, float]) -> bool:
        """Takes an evaluation; returns whether it is the best so far."""
        value = evaluated[self._name]
        if value is None or np.isnan(value):  # metrics.jsonl has null
            value = -np.inf
        elif "loss" in self._name:
            value = -value
        self._values.append(value)
        return value > max(self._values[:-1], default=-np.inf)

    @property
    def is_over(self) -> bool:
        if not self._limit or not self._values:
            return False
        return len(self._values) - 1 - int(np.argmax(self._values)) >= self._limit


def report_chosen(
    experiment: Experiment, checkpoints: Checkpoints, screen: progress.Screen
) -> None:
    """Says which checkpoint evaluates, predicts and is exported; its scores go to results.json.

    Pre-training has them from --mode=evaluate, unless the best checkpoint is chosen.
    """
    use = experiment.config.checkpoint.use
    if experiment.config.task == "pretraining" and use != "best":
        return
    checkpoints.wait()
    step = checkpoints.chosen_step(use)
    if (values := checkpoints.metrics_of(step)) and processes.is_main():
        screen.line(f"{use:<10} step {step}: " + "  ".join(progress.named_values(values)))
        write_results(experiment, step, values)
