"""Compiles and times the steps of a run, and asks the compiler for their memory.

Every batch shape has its own program, which is the one that training compiles, so that training
finds it in the folder of compiled programs. A step that does not fit into the memory, or would take
minutes, is not executed: one of fewer sequences is, and its time is multiplied. The parameters are
zeros; the time of matrix products does not depend on their values. Evaluations are only compiled.
"""

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Iterator, Sequence

import jax

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.devices.chips import peak_flops
from bert_jax.devices.memory import bytes_of, free_memory, used_memory, whole_bytes_of, zeros_like
from bert_jax.tools.doctor.compiled import Compiled, compile_program
from bert_jax.tools.doctor.programs import (
    abstract_batch,
    evaluation_program,
    step_programs,
    with_rows,
)
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.evaluate import evaluation_batch_size
from bert_jax.training.feed import Shape, host_batch, shapes
from bert_jax.training.run import Run
from bert_jax.training.step import TrainStep

# FLOP/s of a core, assumed before anything was measured, and the fraction of their peak that
# accelerators reach. Both are low, so that the first step executed is too small, not too large.
_FLOPS_OF_CORE, _PART_OF_PEAK = 20e9, 0.1
# Seconds that the measured steps of a shape may take.
_MAX_SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured for a shape."""

    shape: Shape
    compiled: tuple[Compiled, ...]  # its programs
    process: int = 0  # bytes that this process had before it compiled them
    program: int = 0  # bytes that it had gained afterwards: programs, and what their compiler keeps
    step_seconds: float = 0.0  # 0: it was not measured
    rows: int = 0  # of the batch that was executed; fewer than those of the shape: scaled

    @functools.cached_property
    def state(self) -> int:
        """Bytes of parameters, optimizer state and carry, on each device."""
        return bytes_of(self.compiled[0].program.arguments[0])

    @functools.cached_property
    def checkpoint(self) -> int:
        """Bytes of the state on disk, of all devices together."""
        return whole_bytes_of(self.compiled[0].program.arguments[0])

    @functools.cached_property
    def peak(self) -> int:
        """Peak bytes of a step on each device, the state included."""
        first, *second = self.compiled
        batch = first.program.sizes["batch"]
        return max(first.peak, self.state, *(program.peak + batch for program in second))

    @functools.cached_property
    def compile_seconds(self) -> float:
        """Seconds to compile its programs."""
        return sum(program.seconds for program in self.compiled)


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The compiler's figures for a phase's evaluations."""

    compiled: tuple[Compiled, ...] = ()  # a program for each length of a batch
    program: int = 0  # bytes that this process gained by compiling them

    @functools.cached_property
    def peak(self) -> int:
        """Peak bytes on each device, besides the parameters."""
        return max((c.peak - c.program.sizes["parameters"] for c in self.compiled), default=0)

    @functools.cached_property
    def compile_seconds(self) -> float:
        """Seconds to compile all their programs."""
        return sum(program.seconds for program in self.compiled)


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
        of_cpus = _FLOPS_OF_CORE * (os.cpu_count() or 1)
        self._speed = (peak_flops() or 0) * _PART_OF_PEAK or of_cpus

    def measure(self, shapes: Sequence[Shape]) -> Iterator[Measured]:
        """Compiles the program of each shape, and executes it or that of fewer rows.

        All are compiled before any is executed: memory that a step has freed would hide what a
        program takes.
        """
        yield from map(self._measure_time, [self._compile(shape, shape.rows) for shape in shapes])

    def _compile(self, shape: Shape, rows: int) -> Measured:
        run, phase, process = self._run, shape.phase, used_memory()
        batch = abstract_batch(run, host_batch(run, phase, phase.first_step + shape.number))
        found = step_programs(
            run,
            shape.kind,
            with_rows(batch, rows),
            batch_size=0 if rows == shape.rows else rows,
            warmup_steps=self._warmup,
        )
        compiled = tuple(map(compile_program, found))
        return Measured(shape, compiled, process, max(0, used_memory() - process))

    def _measure_time(self, found: Measured) -> Measured:
        shape, run = found.shape, self._run
        runs = self._steps and all(compiled.executable for compiled in found.compiled)
        rows = self._rows_that_fit(found) if runs else 0
        if not rows:
            return found
        programs = found.compiled if rows == shape.rows else self._compile(shape, rows).compiled
        step = TrainStep(*(compiled.executable for compiled in programs))
        batch = host_batch(run, shape.phase, shape.phase.first_step + shape.number)
        batch = run.put_batch({name: array[:rows] for name, array in batch.items()}, rows)
        state = zeros_like(programs[0].program.arguments[0])
        keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}
        seconds = []
        for _ in range(self._steps + 1):
            started = time.perf_counter()
            state, metrics = step(state, batch, keys, run.constants)
            jax.block_until_ready((state, metrics))
            seconds.append(time.perf_counter() - started)
        scaled = statistics.median(seconds[1:]) * shape.rows / rows  # the first is not counted
        self._speed = shape.flops / scaled
        return dataclasses.replace(found, step_seconds=scaled, rows=rows)

    def _rows_that_fit(self, found: Measured) -> int:
        """Returns how many rows fit into memory and time; 0: not even the fewest of the mesh do."""
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


def compile_evaluation(run: Run, phase: Phase) -> Evaluated:
    """Compiles the evaluation for each batch length of a phase."""
    size, process = evaluation_batch_size(run.config, phase), used_memory()
    every = (b for rows in run.evaluation_rows(phase) for b in rows.evaluation_batches(size))
    batches = {batch.length: batch for batch in every}.values()
    compiled = tuple(
        compile_program(evaluation_program(run, phase, abstract_batch(run, batch.read(0, 1))))
        for batch in batches
    )
    return Evaluated(compiled, max(0, used_memory() - process))
