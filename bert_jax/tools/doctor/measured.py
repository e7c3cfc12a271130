"""Compiles and times the updates of a run, and asks the compiler for their memory.

Every shape of a batch has its program, which is the one that training compiles, so that it finds
it in the folder of compiled programs. An update that does not fit into the memory, or would take
minutes, is not executed: one of fewer sequences is, and its time is multiplied. The parameters are
zeros; the time of matrix products does not depend on their values.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from bert_jax.config.phases import Phase
from bert_jax.data.batch import Batch
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
from bert_jax.tools.doctor.footprint import Memory
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.feed import Shape, host_batch, shapes
from bert_jax.training.run import Run
from bert_jax.training.state import abstract_state
from bert_jax.training.step import TrainStep, make_train_step

# FLOP/s of a core, before anything was measured, and the part of their peak that accelerators
# reach. Both are low, so that the first update that is executed is rather too small.
_FLOPS_OF_CORE, _PART_OF_PEAK = 20e9, 0.1
# Seconds that the measured updates of a shape may take.
_MOST_SECONDS = 40.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured for a shape.

    Attributes:
      shape: the shape.
      memory: of its program.
      compile_seconds: of its program.
      step_seconds: of an update; 0: it was not measured.
      host_seconds: that the host takes for the batch.
      rows: sequences of the batch that was executed; fewer than those of the shape: scaled.
      process: bytes that this process had before it compiled the program.
      program: bytes that it had more afterwards: the program, and what its compiler keeps.
    """

    shape: Shape
    memory: Memory
    compile_seconds: float
    step_seconds: float = 0.0
    host_seconds: float = 0.0
    rows: int = 0
    process: int = 0
    program: int = 0


def all_shapes(run: Run) -> list[Shape]:
    """Returns the shapes of the training batches of all phases that have updates."""
    phases = [phase for phase in run.phases if phase.last_step > phase.first_step]
    return [shape for phase in phases for shape in shapes(run, phase)]


class Workbench:
    """Compiles and measures the updates of a trial.

    Args:
      trial: the run.
      steps: updates to measure for each shape; 0: they are only compiled.
    """

    def __init__(self, trial: Trial, steps: int):
        self._trial, self._steps = trial, steps
        run = trial.run
        self._optimizer = run.config.optimizer
        self._warmup = trial.steps_of("optimizer.warmup", run.phases[0])
        self._keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}
        self._speed = (peak_flops() or 0) * _PART_OF_PEAK or _cpu_flops()

    def measure(self, shapes: Sequence[Shape]) -> Iterator[Measured]:
        """Compiles the program of each shape, and executes it or that of fewer rows.

        All are compiled before any is executed: memory that an update has freed would hide what a
        program takes.
        """
        compiled = [self._measure_program(shape) for shape in shapes]
        for found, step, batch in compiled:
            yield self._measure_time(found, step, batch)

    def _measure_program(self, shape: Shape) -> tuple[Measured, TrainStep, Any]:
        step, batch, host_seconds = self._prepare(shape, shape.rows)
        process = used_memory()
        seconds, compiled, memory = self._compile(shape.phase, step, batch, shape.rows)
        program = max(0, used_memory() - process)
        found = Measured(shape, memory, seconds, 0.0, host_seconds, 0, process, program)
        return found, compiled, batch

    def _measure_time(self, found: Measured, compiled: TrainStep, batch: Any) -> Measured:
        shape, memory = found.shape, found.memory
        if not self._steps:
            return found
        expected = shape.flops / self._speed * (self._steps + 1)
        rows = shape.rows
        if memory.step > free_memory() or expected > _MOST_SECONDS:
            rows = self._fewer_rows(shape, memory)
            if not rows:
                return found
            step, batch, _ = self._prepare(shape, rows)
            compiled = self._compile(shape.phase, step, batch, rows)[1]
        step_seconds = self._time(shape.phase, compiled, batch, rows)
        self._speed = shape.flops * rows / shape.rows / step_seconds
        scaled = step_seconds * shape.rows / rows
        return dataclasses.replace(found, step_seconds=scaled, rows=rows)

    def _fewer_rows(self, shape: Shape, memory: Memory) -> int:
        """Returns rows that fit into memory and time, a multiple of the mesh's; 0: none do."""
        least = sharding.batch_shards(self._trial.run.mesh)
        room = free_memory() - memory.state
        by_memory = shape.rows * room / max(1, memory.step - memory.state)
        by_time = shape.rows * _MOST_SECONDS * self._speed / (shape.flops * (self._steps + 1))
        rows = max(0, int(min(by_memory / 2, by_time, shape.rows))) // least * least
        return rows or (least if by_memory > least else 0)

    def _prepare(self, shape: Shape, rows: int) -> tuple[TrainStep, Any, float]:
        """Returns the update, a batch of `rows` on the devices, and the host's seconds for it."""
        run, phase = self._trial.run, shape.phase
        started = time.perf_counter()
        batch: Batch = host_batch(run, phase, phase.first_step + shape.number)
        seconds = time.perf_counter() - started
        batch = {name: array[:rows] for name, array in batch.items()}
        size = rows if rows != shape.rows else phase.batch_size
        step = make_train_step(run, phase, batch_size=size, warmup_steps=self._warmup)
        return step, run.put_batch(batch, rows), seconds

    def _compile(
        self, phase: Phase, step: TrainStep, batch: Any, rows: int
    ) -> tuple[float, TrainStep, Memory]:
        """Returns seconds, compiled programs and their memory."""
        state = self._abstract_state(phase, rows)
        started = time.perf_counter()
        programs = [
            program.lower(*arguments).compile()
            for program, arguments in step.programs(state, batch, self._keys)
        ]
        memory = peak_of_program(programs[0])
        for second in programs[1:]:
            memory = max(memory, peak_of_program(second) + bytes_of(batch))
        size = bytes_of(state)
        seconds = time.perf_counter() - started
        memory = Memory(size, max(memory, size), whole_bytes_of(state))
        return seconds, TrainStep(*programs), memory

    def _abstract_state(self, phase: Phase, rows: int) -> Any:
        run = self._trial.run
        tx, _ = make_optimizer(self._optimizer, run.steps, self._warmup)
        return abstract_state(run.task_at(phase), tx, run.mesh, rows)

    def _time(self, phase: Phase, step: TrainStep, batch: Any, rows: int) -> float:
        """Returns the median seconds of an update, after one that is not counted."""
        state = zeros_like(self._abstract_state(phase, rows))
        seconds = []
        for _ in range(self._steps + 1):
            started = time.perf_counter()
            state, metrics = step(state, batch, self._keys)
            jax.block_until_ready((state, metrics))
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds[1:])


def _cpu_flops() -> float:
    return _FLOPS_OF_CORE * (os.cpu_count() or 1)
