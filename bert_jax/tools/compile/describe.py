"""What the command prints of a program, of settings that fit, and of the whole run."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from bert_jax.tools.compile.advice import Setting
from bert_jax.tools.compile.cost import Cost
from bert_jax.tools.compile.program import Compiled, bound
from bert_jax.tools.compile.target import Target

_GIB = 1 << 30


def lines(compiled: Compiled, target: Target) -> Iterator[str]:
    """Yields the lines of a program; all numbers are those of one device."""
    program, num_devices = compiled.program, len(target.devices)
    moved = compiled.moved
    parts = f" in {program.microbatches:,} microbatches" if program.microbatches > 1 else ""
    yield (
        f"\n{program.name}, {program.rows:,} x {program.length:,} tokens{parts}:"
        f" compiled in {compiled.seconds:.0f} s"
    )
    sizes = [f"{name} {size / _GIB:.2f}" for name, size in program.sizes.items()]
    if compiled.no_room:
        yield f"  memory       does not fit: {compiled.no_room}"
        yield f"               {', '.join(sizes)} GiB"
        return
    once = "; loops count once" if moved.loops else ""
    unknown = "; loops of unknown length count once" if moved.unknown_trip_counts else ""
    has_room = f" of {target.room / _GIB:.2f}" if target.room else ""
    fits = "fits" if compiled.fits(target.room) else "does not fit"
    sizes.append(f"temporaries {compiled.temporaries / _GIB:.2f}")
    yield f"  memory       {fits}: {compiled.peak / _GIB:.2f}{has_room} GiB; {', '.join(sizes)}"
    of_all = f"{compiled.flops:.3e}{once}; " if compiled.flops else ""
    yield f"  FLOPs        {of_all}of the model {program.flops / num_devices:.3e}"
    if compiled.accessed:
        yield f"  accessed     {compiled.accessed / 1e9:,.2f} GB, also on the chip{once}"
    yield f"  off the chip {moved.off_chip / 1e9:,.2f} GB{unknown}"
    for kind, found in moved.collectives.items():
        yield f"  {kind:<18} {found.count:>4}, {found.bytes / 1e6:,.1f} MB in all{unknown}"
    if target.chip and program.flops:
        limits = bound(compiled, target.chip, num_devices)
        times = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in limits.parts.items())
        yield (
            f"  bound        at least {limits.seconds * 1e3:.1f} ms ({times}); MFU at most"
            f" {limits.mfu:.1%}"
        )


def setting_as_json(setting: Setting, target: Target) -> dict[str, Any]:
    """Returns a setting that fits as a JSON object."""
    compiled = [as_json(each, target) for each in setting.compiled]
    return {"flags": setting.flags, "changes": setting.changes, "programs": compiled}


def setting_lines(setting: Setting, target: Target) -> Iterator[str]:
    """Yields the lines of a setting that fits: its flags, memory and time."""
    yield f"\n{setting.flags}"
    for compiled in setting.compiled:
        program = compiled.program
        parts = f" in {program.microbatches:,} microbatches" if program.microbatches > 1 else ""
        time = ""
        if target.chip and program.flops:
            seconds = bound(compiled, target.chip, len(target.devices)).seconds
            time = f", at least {seconds * 1e3:.1f} ms"
        yield (
            f"  {program.name}, {program.rows:,} x {program.length:,} tokens{parts}:"
            f" {compiled.peak / _GIB:.2f} GiB{time}"
        )


def cost_line(cost: Cost, price: float) -> str:
    """Returns the line of a whole run, for a price of a chip hour in USD; 0: not known."""
    money = f", {cost.chip_hours * price:,.2f} USD" if price else ""
    return (
        f"whole run    at least {cost.hours:,.2f} hours, {cost.chip_hours:,.2f} chip hours{money}:"
        f" {cost.steps:,} steps at the bound; evaluations and all else come on top"
    )


def cost_as_json(cost: Cost, price: float) -> dict[str, Any]:
    """Returns the least that a whole run costs as a JSON object."""
    found = dataclasses.asdict(cost)
    return found | {"usd": cost.chip_hours * price} if price else found


def as_json(compiled: Compiled, target: Target) -> dict[str, Any]:
    """Returns the same as a JSON object; bytes and FLOPs of one device."""
    program, num_devices, moved = compiled.program, len(target.devices), compiled.moved
    limits = bound(compiled, target.chip, num_devices) if target.chip and program.flops else None
    return {
        "program": program.name,
        "rows": program.rows,
        "sequence_length": program.length,
        "microbatches": program.microbatches,
        "device": target.devices[0].device_kind,
        "devices": num_devices,
        "fits": compiled.fits(target.room),
        "reason": compiled.no_room,
        "compile_seconds": round(compiled.seconds, 1),
        "bytes": {
            **program.sizes,
            "temporaries": compiled.temporaries,
            "peak": compiled.peak,
            "accessed": compiled.accessed,
            "off_chip": moved.off_chip,
        },
        "flops": compiled.flops,
        "model_flops": program.flops / num_devices,
        "collectives": {
            kind: {"count": found.count, "bytes": found.bytes}
            for kind, found in moved.collectives.items()
        },
        "loops": {"count": moved.loops, "of_unknown_length": moved.unknown_trip_counts},
        "bound": limits and {"seconds": limits.parts, "mfu": limits.mfu},
    }
