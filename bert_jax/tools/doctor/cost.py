"""What is printed about compiled programs, and their minimum time at the chips' peak rates.

All numbers of a program are per device. A real run takes longer than its bound, and
evaluations, checkpoints, compilation and the preparation of data come on top of the steps.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from bert_jax.config.phases import Phase
from bert_jax.devices.chips import Chip
from bert_jax.tools.doctor.compiled import GIB, Compiled
from bert_jax.tools.doctor.finding import Finding, note
from bert_jax.tools.doctor.target import Target
from bert_jax.training.feed import shapes
from bert_jax.training.run import Run


@dataclasses.dataclass(frozen=True)
class Bound:
    """The shortest time that a program can take."""

    seconds: float  # time of the slowest part
    parts: dict[str, float]  # seconds of "FLOPs", "memory" and "links", each at its peak rate
    mfu: float  # FLOPs of the model in that time, as a fraction of the peak: no run can have more


def bound(compiled: Compiled, chip: Chip, devices: int) -> Bound:
    """Returns the roofline bound (Williams et al. 2009).

    An all-reduce of n bytes over d devices sends 2 n (d - 1) / d bytes from each of them, the other
    operations half of it. Loops with an unknown trip count are counted once.
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


def describe(compiled: Compiled, target: Target) -> Finding:
    """Returns the finding of a program: whether it fits, and what it computes and moves.

    Its values are the same numbers, in bytes, FLOP and seconds.
    """
    program, num_devices, fits = compiled.program, len(target.devices), compiled.fits(target.room)
    chip = target.chip
    limits = bound(compiled, chip, num_devices) if chip and program.flops else None
    values = {
        "program": program.name,
        "rows": program.rows,
        "sequence_length": program.length,
        "microbatches": program.microbatches,
        "fits": fits,
        "bytes": program.sizes | {"temporaries": compiled.temporaries, "peak": compiled.peak},
        "accessed": compiled.accessed,
        "flops": compiled.flops,
        "model_flops": program.flops / num_devices,
        "moved": dataclasses.asdict(compiled.moved),
        "bound": limits and dataclasses.asdict(limits),
    }
    return Finding(
        "ok" if fits else "problem",
        f"{compiled.name}: compiled in {compiled.seconds:.0f} s",
        lines=tuple(_lines(compiled, target, limits)),
        values=values,
    )


def _lines(compiled: Compiled, target: Target, limits: Bound | None) -> Iterator[str]:
    program, num_devices, moved = compiled.program, len(target.devices), compiled.moved
    sizes = [f"{name} {size / GIB:.2f}" for name, size in program.sizes.items()]
    if compiled.no_room:
        yield f"memory       does not fit: {compiled.no_room}"
        yield f"             {', '.join(sizes)} GiB"
        return
    once = "; loops count once" if moved.loops else ""
    unknown = "; loops of unknown length count once" if moved.unknown_trip_counts else ""
    has_room = f" of {target.room / GIB:.2f}" if target.room else ""
    fits = "fits" if compiled.fits(target.room) else "does not fit"
    sizes.append(f"temporaries {compiled.temporaries / GIB:.2f}")
    yield f"memory       {fits}: {compiled.peak / GIB:.2f}{has_room} GiB; {', '.join(sizes)}"
    of_all = f"{compiled.flops:.3e}{once}; " if compiled.flops else ""
    yield f"FLOPs        {of_all}of the model {program.flops / num_devices:.3e}"
    if compiled.accessed:
        yield f"accessed     {compiled.accessed / 1e9:,.2f} GB, also on the chip{once}"
    yield f"off the chip {moved.off_chip / 1e9:,.2f} GB{unknown}"
    for kind, found in moved.collectives.items():
        yield f"{kind:<18} {found.count:>4}, {found.bytes / 1e6:,.1f} MB in all{unknown}"
    if limits:
        times = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in limits.parts.items())
        yield (
            f"bound        at least {limits.seconds * 1e3:.1f} ms ({times}); MFU at most"
            f" {limits.mfu:.1%}"
        )


def check_cost(
    run: Run, target: Target, compiled: Sequence[Compiled], price: float
) -> Iterator[Finding]:
    """Yields the least that a whole run costs, where the chips are known and all steps fit.

    Args:
      run: result of `plan`, whose phases have their steps.
      target: the devices.
      compiled: the programs of all phases.
      price: USD per chip hour; 0: not known.
    """
    steps = [c for c in compiled if c.program.name != "evaluation"]
    chip, num_devices = target.chip, len(target.devices)
    if not chip or not all(c.fits(target.room) for c in steps):
        return
    if run.config.epochs and not run.training:
        what = "The length of the run is not known: config.epochs are steps only with the data."
        yield note(what, "--config.steps=N")
        return

    def seconds(phase: Phase) -> float:
        if run.training:  # of several batch lengths, only the longest is compiled
            flops = sum(shape.steps * shape.flops for shape in shapes(run, phase))
            return flops / num_devices / chip.flops
        kinds = run.kinds_of_steps(phase)
        of_kinds = [c for c in steps if c.program.phase in kinds]
        of_step = sum(
            kinds[c.program.phase] * bound(c, chip, num_devices).seconds for c in of_kinds
        )
        return (phase.last_step - phase.first_step) * of_step

    hours = sum(seconds(phase) for phase in run.phases if phase.share) / 3600
    values = {"steps": run.steps, "hours": hours, "chip_hours": hours * target.num_chips}
    what = f"The run takes at least {hours:,.2f} hours, {values['chip_hours']:,.2f} chip hours"
    if price:
        values["usd"] = price * values["chip_hours"]
        what += f", {values['usd']:,.2f} USD"
    what += f": {run.steps:,} steps at the bound; evaluations and all else come on top."
    yield Finding("ok", what, values=values)
