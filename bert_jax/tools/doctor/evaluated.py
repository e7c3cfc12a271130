"""Compiles and times the evaluations of a run, and asks the compiler for their memory."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.devices.memory import bytes_of, free_memory, peak_of_program, used_memory, zeros_like
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.carry import init_carry
from bert_jax.training.evaluate import evaluation_batch_size, jitted_eval_step
from bert_jax.training.state import abstract_params


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """What was measured of the evaluations of a phase.

    Attributes:
      memory: bytes of each device at their peak, besides the parameters.
      program: bytes that this process had more after it compiled them.
      compile_seconds: of all their programs.
      seconds: of an evaluation of all held-out rows; 0: it was not executed.
    """

    memory: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    program: int = 0


def measure_evaluation(trial: Trial, phase: Phase, executes: bool) -> Evaluated:
    """Measures a batch of each length of the held-out rows of a phase.

    Args:
      trial: the run.
      phase: with evaluations.
      executes: whether batches are evaluated if they fit into the memory.
    """
    run = trial.run
    config, task = run.config, run.task_at(phase, evaluate=True)
    size = evaluation_batch_size(config, phase)
    step, key = jitted_eval_step(task, run.mesh), run.key("eval_masking")
    like = abstract_params(run.task_at(phase), run.mesh)
    carry = init_carry(task, run.mesh, size)
    memory, program, compiling, counts = 0, 0, 0.0, Counter()
    seconds: dict[int, float] = {}
    for rows in run.evaluation_rows(phase):
        for batch in rows.evaluation_batches(size):
            counts[batch.length] += 1
            if batch.length in seconds:
                continue
            local = batch.read(*sharding.local_rows(run.mesh, size))
            on_device = run.put_batch(local, size)
            started, process = time.perf_counter(), used_memory()
            compiled = step.lower(like, on_device, key, 0, carry).compile()
            compiling += time.perf_counter() - started
            program += max(0, used_memory() - process)
            memory = max(memory, peak_of_program(compiled) - bytes_of(like))
            seconds[batch.length] = 0.0
            if executes and memory + 2 * bytes_of(like) < free_memory():
                arguments = zeros_like(like), on_device, key, 0, carry
                seconds[batch.length] = _seconds(compiled, arguments)
    total = sum(seconds[length] * count for length, count in counts.items())
    if config.has_corpus and counts:
        batches = -(-trial.held_out[run.phases.index(phase)] // size)
        total *= min(batches, config.eval.max_batches or batches) / counts.total()
    return Evaluated(memory, compiling, total, program)


def _seconds(execute: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Returns the seconds of the second of two executions."""
    jax.block_until_ready(execute(*arguments))
    started = time.perf_counter()
    jax.block_until_ready(execute(*arguments))
    return time.perf_counter() - started
