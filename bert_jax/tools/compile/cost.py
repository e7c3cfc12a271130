"""What a whole run costs at least: hours, chip hours and their price, from the bounds of its steps.

They are those of the training steps at the peak rates of the chips: a real run takes longer, and
evaluations, checkpoints, compilation and the preparation of data come on top.
"""

import dataclasses
from collections.abc import Sequence

from bert_jax.config.phases import Phase
from bert_jax.tools.compile.program import Compiled, bound
from bert_jax.tools.compile.target import Target
from bert_jax.training.feed import shapes
from bert_jax.training.run import Run


@dataclasses.dataclass(frozen=True)
class Cost:
    """The least that a run costs.

    Attributes:
      steps: training steps.
      hours: time of the steps.
      chip_hours: the same times the number of chips.
    """

    steps: int
    hours: float
    chip_hours: float


def cost(run: Run, target: Target, compiled: Sequence[Compiled]) -> Cost | None:
    """Returns what a run costs; None where the chips are not known, or a step does not fit.

    Args:
      run: result of `plan`, whose phases have their steps.
      target: the devices.
      compiled: the steps of all phases.
    """
    steps = [c for c in compiled if c.program.name != "evaluation"]
    if not target.chip or not all(c.fits(target.room) for c in steps):
        return None
    phases = [phase for phase in run.phases if phase.share]
    seconds = sum(_seconds(run, phase, target, steps) for phase in phases)
    hours = seconds / 3600
    return Cost(run.steps, hours, hours * target.num_chips)


def _seconds(run: Run, phase: Phase, target: Target, compiled: Sequence[Compiled]) -> float:
    chip, num_devices = target.chip, len(target.devices)
    assert chip is not None
    if run.training:  # batches of several lengths, of which the longest is compiled
        flops = sum(shape.steps * shape.flops for shape in shapes(run, phase))
        return flops / num_devices / chip.flops
    (step,) = (c for c in compiled if c.program.phase == phase)
    return (phase.last_step - phase.first_step) * bound(step, chip, num_devices).seconds
