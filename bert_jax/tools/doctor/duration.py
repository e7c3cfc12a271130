"""How long a run will take, from measured updates."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import jax

from bert_jax.config.phases import Phase
from bert_jax.tools.doctor.evaluated import Evaluated
from bert_jax.tools.doctor.finding import Finding, in_words, note, ok
from bert_jax.tools.doctor.measured import Measured
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.evaluate import evaluation_batch_size

# Seconds of a start besides compiling updates: imports, initial parameters, the report. On 2 cores
# of an AMD EPYC they were 10 to 14 for BERT-Tiny and for MiniLM.
_START = 12.0
# An evaluation that is not measured takes its forward passes: a third of the FLOPs of an update.
_FORWARD = 1 / 3


def check_time(
    trial: Trial,
    found: Sequence[Measured],
    done: int = 0,
    evaluated: Mapping[Phase, Evaluated] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Yields how long a run will take, and what it is made of.

    Args:
      trial: the run.
      found: of all its shapes.
      done: updates that were made before.
      evaluated: of the phases that evaluate.
    """
    if not all(measured.step_seconds for measured in found):
        yield note("The time is not estimated: no update fits into the memory.")
        return
    run = trial.run
    updating = compiling = evaluating = 0.0
    for phase in run.phases:
        of_phase = [measured for measured in found if measured.shape.phase == phase]
        if done >= phase.last_step or not of_phase:
            continue
        updates = phase.last_step - phase.first_step
        left = (phase.last_step - max(done, phase.first_step)) / updates
        updating += left * sum(m.shape.updates * seconds_of_update(m) for m in of_phase)
        compiling += sum(m.compile_seconds for m in of_phase)
        if phase in evaluated:
            once, each = evaluation_time(trial, of_phase, evaluated[phase])
            compiling += once
            evaluating += left * trial.evaluations(phase) * each
    parts = {
        "preparing the data": trial.prepare_seconds,
        "starting and compiling": _START + compiling,
        "updates": updating,
        "evaluations": evaluating,
    }
    seeds = run.config.get("seeds", 1)
    total = sum(parts.values()) + (seeds - 1) * (updating + evaluating)
    listed = ", ".join(f"{name} {in_words(s)}" for name, s in parts.items() if s >= 0.5)
    rest = f" The {run.steps - done:,} updates that are left" if done else " The run"
    more = f", {seeds} seeds" if seeds > 1 else ""
    yield ok(f"{rest.strip()} will take about {in_words(total)}: {listed}{more}.")


def describe(measured: Measured) -> Finding:
    """Returns the finding of a shape."""
    shape = measured.shape
    tokens = shape.rows * shape.length
    what = f"{shape.rows} x {shape.length} tokens: compiled in {measured.compile_seconds:.0f} s"
    if not measured.step_seconds:
        return ok(f"{what}.")
    speed = (
        f"{measured.step_seconds:.3g} s an update, {tokens / measured.step_seconds:,.0f} tokens/s"
    )
    if measured.rows < shape.rows:
        return ok(f"{what}; {speed}, from {measured.rows} x {shape.length} tokens.")
    return ok(f"{what}; {speed}.")


def seconds_of_update(measured: Measured) -> float:
    """Returns the seconds of an update in training, the host's work for its batch included.

    On CPUs the host needs the cores that compute; other devices compute meanwhile.
    """
    if jax.devices()[0].platform == "cpu":
        return measured.step_seconds + measured.host_seconds
    return max(measured.step_seconds, measured.host_seconds)


def evaluation_time(
    trial: Trial, of_phase: Sequence[Measured], evaluated: Evaluated
) -> tuple[float, float]:
    """Returns seconds of compiling, and of one evaluation, for a phase.

    Where it was not executed, it is the forward passes of as many rows.
    """
    if evaluated.seconds:
        return evaluated.compile_seconds, evaluated.seconds
    phase = of_phase[0].shape.phase
    rows = trial.held_out[trial.run.phases.index(phase)]
    size = evaluation_batch_size(trial.run.config, phase)
    most = trial.run.config.eval.max_batches * size or rows
    of_row = sum(m.step_seconds / m.shape.rows for m in of_phase) / len(of_phase)
    return evaluated.compile_seconds, _FORWARD * of_row * min(rows, most)
