"""Reads XLA's text of an optimized program: what leaves the chip, and what devices send each other.

The compiler's own `bytes accessed` also counts what moves within the chip. For a TPU v5e that is
more than half of it, since operands are copied to the memory on the chip before they are used.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping

from bert_jax.tools.doctor.instructions import (
    Computation,
    Computations,
    Instruction,
    arrays,
    parse,
    root_of,
    trip_count,
)

# Operations that move data between devices.
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# They move nothing themselves; what some of them call may.
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id"
    " opt-barrier while conditional call".split()
)
# Changes a part of its first operand, in place.
_UPDATE = "dynamic-update-slice"
# They read only a part of their first operand.
_SLICES = ("slice", "dynamic-slice", "gather")
_PRODUCTS = ("dot", "convolution", "custom-call")
_CHANNEL = re.compile(r"\bchannel_id=\d+")
_COPIES = ("slice-start", "dynamic-slice-start", "copy-start")


@dataclasses.dataclass(frozen=True)
class Collective:
    """All operations of a kind in a program."""

    count: int
    bytes: int  # of their results on a device


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a program moves; operations of a loop count as often as it runs."""

    off_chip: int = 0  # bytes that operations read from the device's memory and write to it
    collectives: Mapping[str, Collective] = dataclasses.field(default_factory=dict)
    loops: int = 0  # with matrix products, whose FLOPs the compiler counts once
    unknown_trip_counts: int = 0  # loops that count once here too


def totals(text: str) -> Totals:
    """Returns what a program moves, from XLA's text of it."""
    computations, entry = parse(text)
    off_chip = loops = unknown_trip_counts = 0
    found: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    channels: set[str] = set()
    # (computation, how often it runs, whether it moves data by itself)
    todo = [(entry, 1, True)]
    while todo:
        name, times, moves = todo.pop()
        computation = computations[name]
        for instruction in computation.values():
            operation = instruction.operation
            kind = operation.removesuffix("-start")
            # Parts of a collective that runs beside other operations share its channel.
            channel = _CHANNEL.search(instruction.rest)
            if kind in COLLECTIVES and not (channel and channel[0] in channels):
                channels |= {channel[0]} if channel else set()
                found[kind][0] += times
                found[kind][1] += times * _result_bytes(instruction)
            if moves:
                off_chip += times * moved(instruction, computation, computations)
            trips = 1
            if operation == "while":
                known = trip_count(instruction, computation, computations)
                trips = 1 if known is None else known
                loops += any(_has_product(computations, c) for c in instruction.called)
                unknown_trip_counts += known is None
            inner = moves and operation in ("while", "conditional", "call")
            todo += [(called, times * trips, inner) for called in instruction.called]
    kinds = {kind: Collective(*found[kind]) for kind in COLLECTIVES if kind in found}
    return Totals(off_chip, kinds, loops, unknown_trip_counts)


def _has_product(computations: Computations, name: str) -> bool:
    return any(
        instruction.operation in _PRODUCTS
        or any(_has_product(computations, called) for called in instruction.called)
        for instruction in computations[name].values()
    )


def moved(instruction: Instruction, computation: Computation, computations: Computations) -> int:
    """Returns the bytes that an instruction reads from the device's memory and writes to it."""
    operation = instruction.operation
    if operation in _FREE or operation.endswith(("-done", "-update")):
        return 0
    if operation in _COPIES:  # (source, result, context): of the source, as much as of the result
        source, (size, on_chip), *_ = arrays(instruction.shape)
        return size * ((not source[1]) + (not on_chip))
    if operation.endswith("-start") and operation != "all-reduce-start":
        return instruction.off_chip  # of operands and results
    fusion = computations[instruction.called[0]] if operation == "fusion" else {}
    moved = _written(instruction, fusion or computation)
    for index, name in enumerate(instruction.operands):
        whole = computation[name].off_chip if name in computation else 0
        if whole and fusion:
            whole = _read(fusion, index, whole, computations)
        elif operation in _SLICES and index == 0:
            whole = min(whole, instruction.bytes)
        elif operation == _UPDATE and index == 0:
            whole = 0
        moved += whole
    return moved


def _written(instruction: Instruction, inside: Computation) -> int:
    """Returns the bytes that an instruction writes; for an array updated in place, its new part."""
    results = [instruction]
    if instruction.operation == "fusion":
        root = root_of(inside)
        results = [inside[o] for o in root.operands] if root.operation == "tuple" else [root]
        results = [inside[i.operands[0]] if i.operation == "bitcast" else i for i in results]
    sizes = list(arrays(instruction.shape))
    if len(sizes) != len(results):  # one operation with several results
        return instruction.off_chip
    written = 0
    for result, (size, on_chip) in zip(results, sizes, strict=True):
        if result.operation == _UPDATE:
            size = inside[result.operands[1]].bytes
        written += 0 if on_chip else size
    return written


def _read(fusion: Computation, index: int, whole: int, computations: Computations) -> int:
    """Returns how many of the `whole` bytes of a parameter a fusion reads: those of slices, none of
    an array that is updated in place, otherwise all."""
    names = {
        name
        for name, i in fusion.items()
        if i.operation == "parameter" and i.rest.startswith(f"{index})")
    }
    read = 0
    for instruction in fusion.values():
        operands = instruction.operands
        if not names.intersection(operands):
            continue
        first = operands[0] in names
        if first and instruction.operation == "bitcast":
            names.add(instruction.name)
        elif first and instruction.operation in _SLICES:
            read += instruction.bytes
        elif instruction.operation == "fusion":
            inner = computations[instruction.called[0]]
            places = (place for place, name in enumerate(operands) if name in names)
            read += sum(_read(inner, place, whole, computations) for place in places)
        elif not first or instruction.operation != _UPDATE:
            return whole
    return min(read, whole)


def _result_bytes(instruction: Instruction) -> int:
    """Returns the result bytes of a collective, excluding operands that it also returns."""
    if instruction.operation not in ("all-gather-start", "collective-permute-start"):
        return instruction.bytes
    # Operands, results, scalars of the context.
    sizes = [size for size, _ in arrays(re.sub(r"\b[su]32\[\]", "", instruction.shape))]
    return sum(sizes[len(sizes) // 2 :])
