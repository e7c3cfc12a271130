"""The memory, disk space and time that a run needs, and whether the machine has it."""

import os
from collections.abc import Iterator, Mapping, Sequence

import jax

from bert_jax.config.phases import Phase
from bert_jax.config.run import RunConfig
from bert_jax.devices import sharding
from bert_jax.devices.memory import device_memory, free_memory, used_memory
from bert_jax.tools.doctor.finding import (
    TIGHT,
    Finding,
    compared,
    in_bytes,
    in_words,
    note,
    ok,
    problem,
)
from bert_jax.tools.doctor.machine import existing_folder, free_space
from bert_jax.tools.doctor.measured import Evaluated, Measured
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.evaluate import evaluated_numbers, evaluation_batch_size

# XLA allocates the memory of each execution anew, and the next one begins before that of the last
# is free: a process on CPUs peaks at up to two steps and two evaluations at a time.
_COPIES = 2
# Preparation writes the corpus as ids and row positions before the shards, then removes them.
_WHILE_PREPARING = 2.0
# A run's folder without data and checkpoints: metrics, events, the vocabulary, the report.
_OTHER_FILES = 20e6
# Seconds of a start besides compiling steps: imports, initial parameters, the report. On 2 cores
# of an AMD EPYC they were 10 to 14 for BERT-Tiny and for MiniLM.
_START = 12.0
# An evaluation is forward passes: a third of the FLOPs of a step.
_FORWARD = 1 / 3


def describe_shape(measured: Measured) -> Finding:
    """Returns the finding of a shape: how long its step takes, or why the compiler refuses it."""
    shape, seconds = measured.shape, measured.step_seconds
    if refused := next((c.no_room for c in measured.compiled if c.no_room), ""):
        return problem(f"{shape.name}: {refused}")
    what = f"{shape.name}: compiled in {measured.compile_seconds:.0f} s"
    if seconds:
        speed = shape.rows * shape.length / seconds
        what += f"; {seconds:.3g} s per step, {speed:,.0f} tokens/s"
        if measured.rows < shape.rows:
            what += f", from {measured.rows} x {shape.length} tokens"
    return ok(f"{what}.")


def check_memory(
    trial: Trial, found: Sequence[Measured], evaluated: Sequence[Evaluated] = ()
) -> Iterator[Finding]:
    """Yields whether the largest step and evaluation of a run fit into the memory of a device.

    CPUs share the memory of the machine with the process, which has imported what training will,
    with all programs that were compiled or loaded, and with a copy of the state while a checkpoint
    is saved; and the memory of a program counts _COPIES times there.

    Args:
      trial: the run.
      found: measurements of all its shapes.
      evaluated: evaluations of its phases.
    """
    largest = max(found, key=lambda measured: measured.peak)
    state, free = largest.state, free_memory()
    evaluating = max((e.peak for e in evaluated), default=0)
    evaluates_most = evaluating + state > largest.peak
    at_most, rest, more = max(largest.peak, evaluating + state), 0, ""
    devices = 1
    if not device_memory():
        devices = jax.local_device_count()
        at_most = state + _COPIES * (largest.peak - state + evaluating)
        at_most *= devices
        programs = sum(one.program for one in (*found, *evaluated))
        rest = largest.checkpoint + min(measured.process for measured in found) + programs
        more = (
            f", {in_bytes(largest.checkpoint)} for saving, {in_bytes(programs)} for compiled"
            " programs, the rest for the process itself"
        )
        free = free * devices + (used_memory() if free else 0)
    needed = at_most + rest
    largest_of = "evaluations" if evaluates_most else f"steps of {largest.shape.name}"
    what = (
        f"The run needs about {in_bytes(needed)} of memory: {in_bytes(at_most)} for"
        f" {largest_of}, of them {in_bytes(state)} for parameters and optimizer{more}"
    )
    if not free:
        yield ok(f"{what}; the free memory is not known.")
        return
    what += f"; it can have {in_bytes(free)}"
    room = (free * (1 if needed > free else TIGHT) - rest) / devices
    fix = _less_memory(trial, largest, evaluates_most, room)
    yield compared(f"{what}.", needed, free, fix)


def _less_memory(trial: Trial, largest: Measured, evaluates_most: bool, room: float) -> str:
    """Returns how to make steps and evaluations fit into `room` bytes of a device."""
    config, shards = trial.run.config, sharding.batch_shards(trial.run.mesh)
    rows, state = largest.shape.rows, largest.state
    if state > room:
        return (
            "The parameters and the optimizer alone do not fit: take a smaller model, a machine"
            " with more memory, or split them over devices (config.mesh.fsdp)."
        )
    if evaluates_most:
        return f"--config.eval.batch_size={max(shards, rows // 4)}"
    now = config.microbatch_size or rows
    copies = 1 if device_memory() else _COPIES
    fitting = now * (room - state) / (copies * max(1, largest.peak - state))
    sizes = [n for n in range(shards, now, shards) if rows % n == 0 and n <= fitting]
    if sizes and config.get("data.batch_by", "rows") == "rows":
        return f"--config.microbatch_size={sizes[-1]}"
    return "--config.model.remat=true, a smaller --config.global_batch_size or shorter phases."


def check_disk(config: RunConfig, workdir: str, trial: Trial, checkpoint: int) -> Iterator[Finding]:
    """Yields whether the disks have room for checkpoints and data.

    Args:
      config: the run's configuration.
      workdir: its folder; empty: the current folder's disk is checked.
      trial: the run.
      checkpoint: bytes of a checkpoint.
    """
    kept = config.checkpoint.keep + config.checkpoint.keep_best + len(trial.milestones())
    count = min(trial.checkpoints(), kept + 1)  # one is written before another is deleted
    seeds = config.get("seeds", 1)
    parts = [f"{count} checkpoints of {in_bytes(checkpoint)}" + f", {seeds} seeds" * (seeds > 1)]
    # File system -> a folder on it, and the bytes that it must have.
    wanted = {_file_system(workdir): [workdir or ".", seeds * (count * checkpoint + _OTHER_FILES)]}
    if trial.prepare_bytes:
        folder = config.data_dir(workdir)
        wanted.setdefault(_file_system(folder), [folder, 0.0])[1] += (
            trial.prepare_bytes * _WHILE_PREPARING
        )
        parts.append(f"{in_bytes(trial.prepare_bytes)} of data, twice that while they are prepared")
    for folder, needed in wanted.values():
        free = free_space(folder)
        what = (
            f"About {in_bytes(needed)} of disk at {folder} ({'; '.join(parts)});"
            f" {in_bytes(free)} are free"
        )
        fix = (
            "Free some space, or choose --workdir and config.data.dir on another disk; fewer"
            " checkpoints: --config.checkpoint.keep=1, and keep_best=0 with"
            " --config.checkpoint.use=newest"
        )
        yield compared(f"{what}.", needed, free, fix)


def _file_system(path: str) -> int:
    return os.stat(existing_folder(path)).st_dev


def check_time(
    trial: Trial, found: Sequence[Measured], evaluated: Mapping[Phase, Evaluated], done: int = 0
) -> Iterator[Finding]:
    """Yields how long a run will take, and what it is made of.

    Args:
      trial: the run.
      found: measurements of all its shapes.
      evaluated: evaluations of the phases that have any.
      done: steps that were done before.
    """
    if not all(measured.step_seconds for measured in found):
        yield note("The time is not estimated: no step fits into the memory.")
        return
    run = trial.run
    updating: dict[str, float] = {}
    compiling = evaluating = 0.0
    for number, phase in enumerate(run.phases):
        of_phase = [measured for measured in found if measured.shape.phase == phase]
        if done >= phase.last_step or not of_phase:
            continue
        todo = phase.last_step - max(done, phase.first_step)
        left = todo / (phase.last_step - phase.first_step)
        seconds = left * sum(m.shape.steps * m.step_seconds for m in of_phase)
        name = "steps" + f" of {phase.sequence_length} tokens" * (len(run.phases) > 1)
        updating[name] = updating.get(name, 0.0) + seconds
        compiling += sum(m.compile_seconds for m in of_phase)
        if phase in evaluated:
            compiling += evaluated[phase].compile_seconds
            of_row = seconds / (left * sum(m.shape.steps * m.shape.rows for m in of_phase))
            rows, size = trial.held_out[number], evaluation_batch_size(run.config, phase)
            if run.config.has_corpus:
                rows = min(rows, len(evaluated_numbers(run.config, rows, size)) * size)
            evaluating += left * trial.evaluations(phase) * _FORWARD * of_row * rows
    parts = {
        "preparing the data": trial.prepare_seconds,
        "starting and compiling": _START + compiling,
        **updating,
        "evaluations": evaluating,
    }
    seeds = run.config.get("seeds", 1)
    total = sum(parts.values()) + (seeds - 1) * (sum(updating.values()) + evaluating)
    listed = ", ".join(f"{name} {in_words(s)}" for name, s in parts.items() if s >= 0.5)
    rest = f"The {run.steps - done:,} steps that are left" if done else "The run"
    more = f", {seeds} seeds" if seeds > 1 else ""
    yield ok(f"{rest} will take about {in_words(total)}: {listed}{more}.")
