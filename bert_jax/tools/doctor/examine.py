"""The checks of a run, in their order: each finding comes as soon as it is known."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.phases import Phase
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.devices import processor
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.formats.hub import local_model
from bert_jax.optim.make import check_names
from bert_jax.tools.doctor import data, needs
from bert_jax.tools.doctor.advice import advise
from bert_jax.tools.doctor.compiled import compile_program
from bert_jax.tools.doctor.cost import check_cost, describe
from bert_jax.tools.doctor.finding import Finding, guarded, note, ok, problem, warning
from bert_jax.tools.doctor.measured import (
    Evaluated,
    Measured,
    Workbench,
    all_shapes,
    compile_evaluation,
)
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.tools.doctor.target import Target, find_target
from bert_jax.tools.doctor.trial import Trial, open_trial
from bert_jax.training.checkpoints import Checkpoints, has_checkpoints, has_imported_params_only
from bert_jax.training.initial import check_source, label_order
from bert_jax.training.resume import check_unchanged
from bert_jax.training.run import make_checked_mesh
from bert_jax.training.suites import check_suites
from bert_jax.training.workdir import LABELS, read_labels

# (group, finding)
Grouped = tuple[str, Finding]
# What the folder of a run holds: the step of the newest intact checkpoint, 0 without one, and the
# meta that it was saved with.
Begun = tuple[int, dict[str, Any]]


def examine(
    config: RunConfig, workdir: str, steps: int, has_data: bool = True, details: bool = False
) -> Iterator[Grouped]:
    """Yields findings about a run, in groups: settings, data, run, steps, memory, disk, time.

    Args:
      config: the run's configuration.
      workdir: its folder; empty: not decided. It is not changed.
      steps: steps to measure for each shape; 0: no time is estimated.
      has_data: False ends after the settings.
      details: whether to report what each program computes and moves.
    """
    begun = _read_begun(workdir)
    settings = list(guarded(_settings(config, workdir, begun)))
    yield from (("settings", finding) for finding in settings)
    if not has_data:
        return
    if any(finding.level == "problem" for finding in settings):
        yield "data", note("The data are not looked at: the problem above comes first.")
        return
    with tempfile.TemporaryDirectory(prefix="bert_jax_doctor_") as folder:
        opened: list[Trial] = []
        yield from _in("data", _data(config, workdir, folder, opened))
        if not opened:
            yield "run", note("Memory, disk and time need data that can be opened.")
            return
        (trial,) = opened
        yield from _in("run", _run(config, workdir, trial, begun))
        yield from _measured(config, workdir, trial, steps, begun, details)


def examine_elsewhere(
    config: RunConfig,
    workdir: str,
    target: Target,
    *,
    compiles: bool = True,
    advises: bool = True,
    price: float = 0.0,
) -> Iterator[Grouped]:
    """Yields findings about a run on hardware that this machine lacks: settings, programs.

    A corpus is not read, and nothing is executed.

    Args:
      config: the run's configuration.
      workdir: its folder; empty: not decided.
      target: the hardware.
      compiles: False ends after the settings.
      advises: whether to search for settings that fit if a program does not.
      price: USD per chip hour; 0: not known.
    """

    def compile_all() -> Iterator[Finding]:
        run, compiled = plan(config, make_checked_mesh(config, target.devices)), []
        for program in programs(run):
            compiled.append(compile_program(program))
            yield describe(compiled[-1], target)
        yield from check_cost(run, target, compiled, price)
        refused = [program for program in compiled if not program.fits(target.room)]
        if refused and advises:
            yield from advise(run, target, refused)

    with target.lowering():
        settings = list(guarded(_settings(config, workdir, _read_begun(workdir), target.devices)))
        yield from (("settings", finding) for finding in settings)
        if compiles and all(finding.level != "problem" for finding in settings):
            yield from _in("programs", compile_all())


def _in(group: str, check: Iterator[Finding]) -> Iterator[Grouped]:
    return ((group, finding) for finding in guarded(check))


def _read_begun(workdir: str) -> Begun:
    if not (workdir and has_checkpoints(workdir)):
        return 0, {}
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        step = checkpoints.newest_good_step() or 0
        return step, checkpoints.read_meta(step) if step else {}


def _is_complete(begun: Begun, steps: int) -> bool:
    step, meta = begun
    return step >= steps or bool(meta.get("ended_early"))


def _settings(
    config: RunConfig, workdir: str, begun: Begun, devices: Sequence[Any] = ()
) -> Iterator[Finding]:
    check_names(config.optimizer)  # these raise what training would raise
    check_suites(config)
    mesh = make_checked_mesh(config, devices)
    shape = ", ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
    yield ok(f"Task {config.task.name}, model {config.model.name}, {config.dtype}, mesh {shape}.")
    rounds = config.dtype == "bfloat16_products" and mesh.devices.flat[0].platform == "cpu"
    if rounds and not processor.gains_from_bfloat16():
        yield note(
            "This processor multiplies float32 faster than bfloat16.", "--config.dtype=float32"
        )
    if has_imported_params_only(workdir):
        yield problem(
            f"{workdir} holds imported parameters, not a run.",
            f"--config.init_from={workdir} --workdir=NEW",
        )
    elif has_checkpoints(workdir) and not begun[0]:
        yield warning(
            f"{workdir} has no intact checkpoint: training would start again.",
            "If it should not: restore the folder `checkpoints`.",
        )
    if config.init_from and not begun[0]:
        check_source(config)
        yield ok(f"The parameters in {config.init_from} fit config.model.")
        yield from data.check_rate(config)


def _data(config: RunConfig, workdir: str, folder: str, opened: list[Trial]) -> Iterator[Finding]:
    trial = open_trial(config, workdir, folder)
    opened.append(trial)
    if isinstance(config, PretrainingConfig):
        yield from data.check_corpus(config, trial)
    else:
        yield from data.check_labelled(trial.run)
        before, labels = _source_labels(config), trial.run.task.labels or ()
        if labels and before and label_order(before, labels) is None:
            yield note(
                f"The head will be new: the labels of config.init_from are {', '.join(before[:8])};"
                f" those of the data: {', '.join(labels[:8])}."
            )


def _source_labels(config: RunConfig) -> tuple[str, ...]:
    """Returns the labels of the head in config.init_from; () if it has none for this task."""
    if not (path := local_model(config.init_from)):
        return ()
    if format_of(path) == "workdir":
        same = store.load(path).task.name == config.task.name
        return read_labels(path) if same and os.path.isfile(os.path.join(path, LABELS)) else ()
    checkpoint = open_checkpoint(path)
    return checkpoint.labels if checkpoint.task == config.task.name else ()


def _run(config: RunConfig, workdir: str, trial: Trial, begun: Begun) -> Iterator[Finding]:
    run, steps = trial.run, trial.run.steps
    epochs = sum(
        (phase.last_step - phase.first_step) * phase.batch_size / rows
        for phase, rows in zip(run.phases, trial.rows, strict=True)
    )
    yield ok(
        f"{steps:,} steps, {epochs:.3g} epochs of the training data;"
        f" {sum(map(trial.evaluations, run.phases)):,} evaluations, {trial.checkpoints():,}"
        " checkpoints."
    )
    warmup = trial.steps_of("optimizer.warmup", run.phases[0])
    if warmup >= steps and not config.optimizer.phase_schedules:
        yield warning(
            f"config.optimizer.warmup={config.optimizer.warmup!r}: {warmup:,} of {steps:,} steps:"
            " the learning rate never reaches its peak.",
            "--config.optimizer.warmup=10%",
        )
    if not begun[0]:
        return
    done = f"{begun[0]:,} of {steps:,} steps are done"
    if _is_complete(begun, steps):
        yield note(f"The run is complete: {done}.")
    else:
        yield note(f"The run is not complete: {done}.", "The same command resumes it.")
    same = {"config": config, "workdir": workdir}
    if trial.sample:  # the fingerprint is that of a sample
        same["fingerprint"] = begun[1]["data"]
    check_unchanged(dataclasses.replace(run, **same), begun[1])


def _measured(
    config: RunConfig, workdir: str, trial: Trial, steps: int, begun: Begun, details: bool
) -> Iterator[Grouped]:
    found: list[Measured] = []
    evaluated: dict[Phase, Evaluated] = {}
    steps = 0 if _is_complete(begun, trial.run.steps) else steps

    def measure() -> Iterator[Finding]:
        for measured in Workbench(trial, steps).measure(all_shapes(trial.run)):
            found.append(measured)
            yield needs.describe_shape(measured)
        for phase in filter(trial.evaluations, trial.run.phases):
            evaluated[phase] = compile_evaluation(trial.run, phase)
        if details:
            here = find_target("")
            for each in (*found, *evaluated.values()):
                yield from (describe(compiled, here) for compiled in each.compiled)

    yield from _in("steps", measure())
    if not found:
        return
    yield from _in("memory", needs.check_memory(trial, found, list(evaluated.values())))
    checkpoint = max(measured.checkpoint for measured in found)
    yield from _in("disk", needs.check_disk(config, workdir, trial, checkpoint))
    if steps:
        yield from _in("time", needs.check_time(trial, found, evaluated, begun[0]))
