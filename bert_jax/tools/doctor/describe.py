"""What is printed of a compiled program; all numbers are those of one device."""

import dataclasses
from collections.abc import Iterator

from bert_jax.tools.doctor.compiled import Compiled
from bert_jax.tools.doctor.cost import Bound, bound
from bert_jax.tools.doctor.finding import Finding
from bert_jax.tools.doctor.target import Target

GIB = 1 << 30


def describe(compiled: Compiled, target: Target) -> Finding:
    """Returns the finding of a program: whether it fits, and what it computes and moves.

    Its values are the same numbers, in bytes, FLOP and seconds.
    """
    fits = compiled.fits(target.room)
    what = f"{name_of(compiled)}: compiled in {compiled.seconds:.0f} s"
    limits, program = _bound(compiled, target), compiled.program
    lines = tuple(_lines(compiled, target, limits))
    values = {
        "program": program.name,
        "rows": program.rows,
        "sequence_length": program.length,
        "microbatches": program.microbatches,
        "fits": fits,
        "bytes": program.sizes | {"temporaries": compiled.temporaries, "peak": compiled.peak},
        "accessed": compiled.accessed,
        "flops": compiled.flops,
        "model_flops": program.flops / len(target.devices),
        "moved": dataclasses.asdict(compiled.moved),
        "bound": limits and dataclasses.asdict(limits),
    }
    return Finding("ok" if fits else "problem", what, lines=lines, values=values)


def name_of(compiled: Compiled) -> str:
    """Returns "step, 256 x 128 tokens in 4 microbatches"."""
    program = compiled.program
    parts = f" in {program.microbatches:,} microbatches" if program.microbatches > 1 else ""
    return f"{program.name}, {program.rows:,} x {program.length:,} tokens{parts}"


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


def _bound(compiled: Compiled, target: Target) -> Bound | None:
    """Returns the bound of a program; None where the chip is not known."""
    if not target.chip or not compiled.program.flops:
        return None
    return bound(compiled, target.chip, len(target.devices))
