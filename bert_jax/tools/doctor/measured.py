"""Compiles and times the steps of a run, and asks the compiler for their memory.

Every shape of a batch has its program, which is the one that training compiles, so that it finds
it in the folder of compiled programs. A step that does not fit into the memory, or would take
minutes, is not executed: one of fewer sequences is, and its time is multiplied. The parameters are
zeros; the time of matrix products does not depend on their values. Evaluations are only compiled.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.devices.chips import peak_flops
from bert_jax.devices.memory import (
    bytes_of,
    free_memory,
    peak_of_program,
    used_memory,
    whole_bytes_of,
    zeros_like,
)
from bert_jax.optim.make import make_optimizer
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.carry import init_carry
from bert_jax.training.evaluate import evaluation_batch_size, jitted_eval_step
from bert_jax.training.feed import Shape, host_batch, shapes
from bert_jax.training.run import Run
from bert_jax.training.state import abstract_params, abstract_state
from bert_jax.training.step import TrainStep, make_train_step

# FLOP/s of a core, before anything was measured, and the part of their peak that accelerators
# reach. Both are low, so that the first step that is executed is rather too small.
_FLOPS_OF_CORE, _PART_OF_PEAK = 20e9, 0.1
# Seconds that the measured steps of a shape may take.
_MAX_SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured for a shape.

    Attributes:
      shape: the shape.
      state: bytes of parameters, optimizer state and what is carried, on each device.
      peak: bytes of a step at its peak on each device, the state included.
      checkpoint: bytes of the state on disk, of all devices together.
      compile_seconds: seconds to compile its program.
      step_seconds: seconds of a step; 0: it was not measured.
      rows: sequences of the batch that was executed; fewer than those of the shape: scaled.
      process: bytes that this process had before it compiled the program.
      program: bytes that it had more afterwards: the program, and what its compiler keeps.
    """

    shape: Shape
    state: int
    peak: int
    checkpoint: int
    compile_seconds: float
    step_seconds: float = 0.0
    rows: int = 0
    process: int = 0
    program: int = 0


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The compiler's figures for a phase's evaluations.

    Attributes:
      peak: bytes of each device at their peak, besides the parameters.
      compile_seconds: seconds to compile all their programs.
      program: bytes that this process had more after it compiled them.
    """

    peak: int = 0
    compile_seconds: float = 0.0
    program: int = 0


def all_shapes(run: Run) -> list[Shape]:
    """Returns the training batch shapes of all phases with steps."""
    phases = [phase for phase in run.phases if phase.last_step > phase.first_step]
    return [shape for phase in phases for shape in shapes(run, phase)]


class Workbench:
    """Compiles and measures the steps of a trial.

    Args:
      trial: the run.
      steps: steps to measure for each shape; 0: they are only compiled.
    """

    def __init__(self, trial: Trial, steps: int):
        self._run, self._steps = trial.run, steps
        self._warmup = trial.steps_of("optimizer.warmup", trial.run.phases[0])
        self._keys = {purpose: trial.run.key(purpose) for purpose in ("dropout", "masking")}
        of_cpus = _FLOPS_OF_CORE * (os.cpu_count() or 1)
        self._speed = (peak_flops() or 0) * _PART_OF_PEAK or of_cpus

    def measure(self, shapes: Sequence[Shape]) -> Iterator[Measured]:
        """Compiles the program of each shape, and executes it or that of fewer rows.

        All are compiled before any is executed: memory that a step has freed would hide what a
        program takes.
        """
        compiled = [self._compile(shape, shape.rows) for shape in shapes]
        for found, *program in compiled:
            yield self._measure_time(found, *program)

    def _compile(self, shape: Shape, rows: int) -> tuple[Measured, TrainStep, Any]:
        """Returns what the compiler says of `rows` of a shape, the programs, and their batch."""
        run, phase, process = self._run, shape.phase, used_memory()
        batch = host_batch(run, phase, phase.first_step + shape.number)
        batch = run.put_batch({name: array[:rows] for name, array in batch.items()}, rows)
        size = rows if rows != shape.rows else phase.batch_size
        step = make_train_step(run, phase, batch_size=size, warmup_steps=self._warmup)
        state = self._abstract_state(phase, size)
        started = time.perf_counter()
        programs = [
            program.lower(*arguments).compile()
            for program, arguments in step.programs(state, batch, self._keys, run.constants)
        ]
        peak = peak_of_program(programs[0])
        for second in programs[1:]:
            peak = max(peak, peak_of_program(second) + bytes_of(batch))
        found = Measured(
            shape,
            state=bytes_of(state),
            peak=max(peak, bytes_of(state)),
            checkpoint=whole_bytes_of(state),
            compile_seconds=time.perf_counter() - started,
            process=process,
            program=max(0, used_memory() - process),
        )
        return found, TrainStep(*programs), batch

    def _measure_time(self, found: Measured, step: TrainStep, batch: Any) -> Measured:
        shape = found.shape
        if not self._steps:
            return found
        rows = self._rows_that_fit(found)
        if not rows:
            return found
        if rows < shape.rows:
            _, step, batch = self._compile(shape, rows)
        size = rows if rows < shape.rows else shape.phase.batch_size
        state = zeros_like(self._abstract_state(shape.phase, size))
        seconds = []
        for _ in range(self._steps + 1):
            started = time.perf_counter()
            state, metrics = step(state, batch, self._keys, self._run.constants)
            jax.block_until_ready((state, metrics))
            seconds.append(time.perf_counter() - started)
        scaled = statistics.median(seconds[1:]) * shape.rows / rows  # the first is not counted
        self._speed = shape.flops / scaled
        return dataclasses.replace(found, step_seconds=scaled, rows=rows)

    def _rows_that_fit(self, found: Measured) -> int:
        """Returns rows that fit into memory and time; 0: not even the fewest of the mesh do."""
        shape, free = found.shape, free_memory()
        expected = shape.flops / self._speed * (self._steps + 1)
        if found.peak <= free and expected <= _MAX_SECONDS:
            return shape.rows
        fewest = sharding.batch_shards(self._run.mesh)
        by_memory = shape.rows * (free - found.state) / max(1, found.peak - found.state)
        by_time = shape.rows * _MAX_SECONDS / expected
        rows = max(0, int(min(by_memory / 2, by_time, shape.rows))) // fewest * fewest
        most = self._run.config.num_microbatches(shape.phase.batch_size)
        _, of_part = sharding.even_parts(self._run.mesh, shape.rows, most)
        rows = rows // of_part * of_part or rows  # whole microbatches
        return rows or (fewest if by_memory > fewest else 0)

    def _abstract_state(self, phase: Phase, rows: int) -> Any:
        tx, _ = make_optimizer(self._run.config.optimizer, self._run.steps, self._warmup)
        return abstract_state(self._run.task_at(phase), tx, self._run.mesh, rows)


def compile_evaluation(run: Run, phase: Phase) -> Evaluated:
    """Compiles the evaluation for each batch length of a phase."""
    task, size = run.task_at(phase, evaluate=True), evaluation_batch_size(run.config, phase)
    parts = run.config.num_microbatches(size)
    step, key = jitted_eval_step(task, run.mesh, parts), run.key("eval_masking")
    params = abstract_params(run.task_at(phase), run.mesh)
    padded = sharding.padded_rows(run.mesh, size, parts)
    carry = init_carry(task, run.mesh, padded)
    splits = run.evaluation_rows(phase)
    every = (batch for rows in splits for batch in rows.evaluation_batches(size))
    process, peak, seconds = used_memory(), 0, 0.0
    for batch in {batch.length: batch for batch in every}.values():
        local = batch.read(*sharding.local_rows(run.mesh, padded))
        on_device = run.put_batch(local, padded)
        started = time.perf_counter()
        compiled = step.lower(params, on_device, key, 0, carry).compile()
        seconds += time.perf_counter() - started
        peak = max(peak, peak_of_program(compiled) - bytes_of(params))
    return Evaluated(peak, seconds, max(0, used_memory() - process))
