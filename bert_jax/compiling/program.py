"""What a compiled program needs: memory, FLOPs, bytes of memory that it reads and writes, and what
the devices send each other."""

import dataclasses
import math
import re
import time
from collections.abc import Iterator

import jax

from bert_jax.compiling.plan import Program
from bert_jax.devices.chips import Chip
from bert_jax.devices.footprint import peak_of_program

# Operations that move data between devices, in XLA's text of a program.
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_OPERATION = re.compile(
    rf"^\s*(?:ROOT )?\S+ = (.+?) ({'|'.join(COLLECTIVES)})(-start)?\(", re.MULTILINE
)
_ARRAY = re.compile(r"\b(pred|[a-z]+[0-9]+(?:e\dm\d\w*)?)\[([\d,]*)\]")
_NO_ROOM = ("RESOURCE_EXHAUSTED", "Ran out of memory", "out of memory")


@dataclasses.dataclass(frozen=True)
class Collective:
    """All operations of a kind in a program; those of a loop count once.

    Attributes:
      count: of them.
      bytes: of their results on a device.
    """

    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program, for each device.

    Attributes:
      program: that was compiled.
      seconds: of the compiler.
      peak: bytes of memory, arguments and results included.
      temporaries: bytes of memory besides arguments and results.
      flops: of all operations, in FLOP; those of a loop count once.
      accessed: bytes of memory read and written; those of a loop count once.
      collectives: by kind.
      no_room: why it does not fit, in the compiler's words; empty if it does.
    """

    program: Program
    seconds: float
    peak: int = 0
    temporaries: int = 0
    flops: float = 0.0
    accessed: float = 0.0
    collectives: dict[str, Collective] = dataclasses.field(default_factory=dict)
    no_room: str = ""

    def fits(self, room: int) -> bool:
        """Returns whether it fits into `room` bytes; 0: into what the compiler knows of."""
        return not self.no_room and (not room or self.peak <= room)


def compile_program(program: Program) -> Compiled:
    """Compiles a program, and returns what the compiler says; also if it does not fit."""
    lowered = program.lower()
    started = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if not any(words in str(error) for words in _NO_ROOM):
            raise
        return Compiled(program, time.perf_counter() - started, no_room=_reason(str(error)))
    seconds = time.perf_counter() - started
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return Compiled(
        program,
        seconds,
        peak_of_program(compiled),
        memory.temp_size_in_bytes if memory else 0,
        costs.get("flops", 0.0),
        costs.get("bytes accessed", 0.0),
        count_collectives(compiled.as_text()),
    )


def _reason(message: str) -> str:
    """Returns the first line of the compiler's message, which has the numbers."""
    return message.splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")


def count_collectives(text: str) -> dict[str, Collective]:
    """Returns the collective operations in XLA's text of an optimized program, by kind.

    An operation that begins with `-start` returns its operands too; they are not counted.
    """
    found: dict[str, list[int]] = {}
    for shape, kind, start in _OPERATION.findall(text):
        sizes = list(_sizes(shape))
        if start and kind in ("all-gather", "collective-permute"):
            sizes = sizes[len(sizes) // 2 :]  # operands, results
        found.setdefault(kind, []).append(sum(sizes))
    return {k: Collective(len(found[k]), sum(found[k])) for k in COLLECTIVES if k in found}


def _sizes(shape: str) -> Iterator[int]:
    """Yields the bytes of the arrays of "f32[768,3072]{1,0:T(8,128)}" or of a tuple of such."""
    for dtype, dimensions in _ARRAY.findall(shape):
        count = math.prod(int(size) for size in dimensions.split(",") if size)
        bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
        yield count * bits // 8


@dataclasses.dataclass(frozen=True)
class Bound:
    """The shortest time that a program can take.

    Attributes:
      seconds: of the slowest of `parts`.
      parts: seconds of "FLOPs", "memory" and "links", each at its peak rate.
      mfu: FLOPs of the model in that time, as a part of the peak: no run can have more.
    """

    seconds: float
    parts: dict[str, float]
    mfu: float


def bound(compiled: Compiled, chip: Chip, devices: int) -> Bound:
    """Returns the roofline's bound (Williams et al. 2009).

    An all-reduce of n bytes over d devices sends 2 n (d - 1) / d bytes from each of them, the other
    operations half of it. Of a program with microbatches, whose loop the compiler counts once, only
    the FLOPs of the model are known.
    """
    model = compiled.program.flops / devices
    parts = {"FLOPs": model / chip.flops}
    if compiled.program.microbatches == 1:
        sent = sum(
            (2 if kind == "all-reduce" else 1) * found.bytes
            for kind, found in compiled.collectives.items()
        )
        parts["FLOPs"] = max(compiled.flops, model) / chip.flops
        if chip.bandwidth:
            parts["memory"] = compiled.accessed / chip.bandwidth
        if chip.interconnect:
            parts["links"] = sent * (devices - 1) / devices / chip.interconnect
    seconds = max(parts.values())
    return Bound(seconds, parts, model / chip.flops / seconds if seconds else 0.0)
