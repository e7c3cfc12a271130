"""The least time of a program and of a whole run, by the peak rates of the chips.

A real run takes longer, and evaluations, checkpoints, compilation and the preparation of data come
on top of the steps.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from bert_jax.config.phases import Phase
from bert_jax.devices.chips import Chip
from bert_jax.tools.doctor.compiled import Compiled
from bert_jax.tools.doctor.finding import Finding, note
from bert_jax.tools.doctor.target import Target
from bert_jax.training.feed import shapes
from bert_jax.training.run import Run


@dataclasses.dataclass(frozen=True)
class Bound:
    """The shortest time that a program can take.

    Attributes:
      seconds: time of the slowest part.
      parts: seconds of "FLOPs", "memory" and "links", each at its peak rate.
      mfu: FLOPs of the model in that time, as a part of the peak: no run can have more.
    """

    seconds: float
    parts: dict[str, float]
    mfu: float


def bound(compiled: Compiled, chip: Chip, devices: int) -> Bound:
    """Returns the roofline's bound (Williams et al. 2009).

    An all-reduce of n bytes over d devices sends 2 n (d - 1) / d bytes from each of them, the other
    operations half of it. Loops whose number of turns is not known count once.
    """
    model = compiled.program.flops / devices
    parts = {"FLOPs": max(compiled.flops, model) / chip.flops}
    if chip.bandwidth:
        parts["memory"] = compiled.moved.off_chip / chip.bandwidth
    if chip.interconnect:
        sent = sum(
            (2 if kind == "all-reduce" else 1) * found.bytes
            for kind, found in compiled.moved.collectives.items()
        )
        parts["links"] = sent * (devices - 1) / devices / chip.interconnect
    seconds = max(parts.values())
    return Bound(seconds, parts, model / chip.flops / seconds if seconds else 0.0)


def check_cost(
    run: Run, target: Target, compiled: Sequence[Compiled], price: float
) -> Iterator[Finding]:
    """Yields the least that a whole run costs, where the chips are known and all steps fit.

    Args:
      run: result of `plan`, whose phases have their steps.
      target: the devices.
      compiled: the programs of all phases.
      price: USD of a chip hour; 0: not known.
    """
    steps = [c for c in compiled if c.program.name != "evaluation"]
    if not target.chip or not all(c.fits(target.room) for c in steps):
        return
    if run.config.epochs and not run.training:
        what = "The length of the run is not known: config.epochs are steps only with the data."
        yield note(what, "--config.steps=N")
        return
    phases = [phase for phase in run.phases if phase.share]
    hours = sum(_seconds(run, phase, target, steps) for phase in phases) / 3600
    values = {"steps": run.steps, "hours": hours, "chip_hours": hours * target.num_chips}
    what = f"The run takes at least {hours:,.2f} hours, {values['chip_hours']:,.2f} chip hours"
    if price:
        values["usd"] = price * values["chip_hours"]
        what += f", {values['usd']:,.2f} USD"
    what += f": {run.steps:,} steps at the bound; evaluations and all else come on top."
    yield Finding("ok", what, values=values)


def _seconds(run: Run, phase: Phase, target: Target, steps: Sequence[Compiled]) -> float:
    """Returns the least time of a phase's steps."""
    chip, num_devices = target.chip, len(target.devices)
    assert chip is not None
    if run.training:  # batches of several lengths, of which the longest is compiled
        flops = sum(shape.steps * shape.flops for shape in shapes(run, phase))
        return flops / num_devices / chip.flops
    (step,) = (c for c in steps if c.program.phase == phase)
    return (phase.last_step - phase.first_step) * bound(step, chip, num_devices).seconds
