"""Whether memory and disks have room for a run."""

from collections.abc import Iterator, Sequence

import jax

from bert_jax.config.run import RunConfig
from bert_jax.devices import sharding
from bert_jax.devices.memory import device_memory, free_memory, used_memory
from bert_jax.tools.doctor.evaluated import Evaluated
from bert_jax.tools.doctor.finding import Finding, in_bytes, ok, problem, warning
from bert_jax.tools.doctor.machine import (
    file_system,
    free_space,
)
from bert_jax.tools.doctor.measured import Measured
from bert_jax.tools.doctor.trial import Trial

# XLA allocates the memory of each execution anew, and the next one begins before the last one's is
# free: the peak of a process on CPUs is that of up to two updates and two evaluations at a time.
_COPIES = 2
# Parts of the free memory or disk from which a run may not fit: others use them too.
_TIGHT = 0.85
# Preparing writes the corpus as ids and as places of rows before the shards, and removes them.
_WHILE_PREPARING = 2.0
# A folder of a run without data and checkpoints: metrics, events, the vocabulary, the report.
_OTHER_FILES = 20e6


def check_memory(
    trial: Trial, found: Sequence[Measured], evaluated: Sequence[Evaluated] = ()
) -> Iterator[Finding]:
    """Yields whether the largest update and evaluation of a run fit into the memory of a device.

    CPUs share the memory of the machine with the process, which has imported what training will,
    with all programs that were compiled or loaded, and with a copy of the state while a checkpoint
    is saved; and the memory of a program counts _COPIES times there.

    Args:
      trial: the run.
      found: of all its shapes.
      evaluated: of its phases.
    """
    largest = max(found, key=lambda measured: measured.memory.step)
    memory, free = largest.memory, free_memory()
    evaluating = max((e.memory for e in evaluated), default=0)
    of_evaluation = evaluating + memory.state
    at_most, rest, more = max(memory.step, of_evaluation), 0, ""
    if not device_memory():
        devices = jax.local_device_count()
        at_most = memory.state + _COPIES * (memory.step - memory.state + evaluating)
        at_most *= devices
        programs = sum(one.program for one in (*found, *evaluated))
        rest = memory.checkpoint + min(measured.process for measured in found) + programs
        more = (
            f", {in_bytes(memory.checkpoint)} for saving, {in_bytes(programs)} for compiled"
            " programs, the rest for the process itself"
        )
        free = free * devices + (used_memory() if free else 0)
    needed = at_most + rest
    what = (
        f"The run needs about {in_bytes(needed)} of memory: {in_bytes(at_most)} for"
        f" {_what(largest, of_evaluation)}, of them {in_bytes(memory.state)} for parameters and"
        f" optimizer{more}"
    )
    if not free:
        yield ok(f"{what}; the free memory is not known.")
        return
    what += f"; it can have {in_bytes(free)}"
    if needed > free:
        yield problem(f"{what}.", _less_memory(trial, largest, of_evaluation, free - rest))
    elif needed > _TIGHT * free:
        room = int(_TIGHT * free) - rest
        yield warning(f"{what}.", _less_memory(trial, largest, of_evaluation, room))
    else:
        yield ok(f"{what}.")


def _what(largest: Measured, of_evaluation: int) -> str:
    if of_evaluation > largest.memory.step:
        return "evaluations"
    return f"updates of {largest.shape.rows} x {largest.shape.length} tokens"


def _less_memory(trial: Trial, largest: Measured, of_evaluation: int, free: int) -> str:
    """Returns how to make updates and evaluations fit into `free` bytes of all CPUs or a device."""
    config, mesh = trial.run.config, trial.run.mesh
    memory, rows = largest.memory, largest.shape.rows
    copies = 1
    if not device_memory():
        copies = _COPIES
        free //= jax.local_device_count()
    if memory.state > free:
        return (
            "The parameters and the optimizer alone do not fit: take a smaller model, a machine"
            " with more memory, or split them over devices (config.mesh.fsdp)."
        )
    if of_evaluation > memory.step:
        return f"--config.eval.batch_size={max(sharding.batch_shards(mesh), rows // 4)}"
    now = config.microbatch_size or rows
    room = now * (free - memory.state) / (copies * max(1, memory.step - memory.state))
    shards = sharding.batch_shards(mesh)
    sizes = [n for n in range(shards, now, shards) if rows % n == 0 and n <= room]
    if config.get("data.batch_by", "rows") == "rows":
        if sizes:
            return f"--config.microbatch_size={sizes[-1]}"
    return "--config.model.remat=true, a smaller --config.global_batch_size or shorter phases."


def check_disk(config: RunConfig, workdir: str, trial: Trial, state: int) -> Iterator[Finding]:
    """Yields whether the disks have room for checkpoints and data.

    Args:
      config: of the run.
      workdir: its folder; empty: the current folder's disk is looked at.
      trial: the run.
      state: bytes of a checkpoint.
    """
    kept = config.checkpoint.keep + config.checkpoint.keep_best
    count = min(trial.checkpoints(), kept + 1)  # one is written before another is deleted
    seeds = config.get("seeds", 1)
    needed = seeds * (count * state + _OTHER_FILES)
    parts = [f"{count} checkpoints of {in_bytes(state)}" + (f", {seeds} seeds" * (seeds > 1))]
    places = {file_system(workdir): workdir or "."}
    wanted = {file_system(workdir): needed}
    if trial.prepare_bytes:
        folder = config.data_dir(workdir)
        place = file_system(folder)
        places.setdefault(place, folder)
        data = trial.prepare_bytes * _WHILE_PREPARING
        wanted[place] = wanted.get(place, 0) + data
        parts.append(f"{in_bytes(trial.prepare_bytes)} of data, twice that while they are prepared")
    for place, needed in wanted.items():
        free = free_space(places[place])
        what = (
            f"About {in_bytes(needed)} of disk at {places[place]} ({'; '.join(parts)});"
            f" {in_bytes(free)} are free"
        )
        fix = (
            "Free some space, or choose --workdir and config.data.dir on another disk; fewer"
            " checkpoints: --config.checkpoint.keep=1 --config.checkpoint.keep_best=0"
        )
        if needed > free:
            yield problem(f"{what}.", fix)
        elif needed > _TIGHT * free:
            yield warning(f"{what}.", fix)
        else:
            yield ok(f"{what}.")
