"""What a compiled program needs: memory, FLOPs, bytes of memory that it reads and writes, and what
the devices send each other."""

import dataclasses
import time
from typing import Any

import jax

from bert_jax.devices.chips import Chip
from bert_jax.devices.memory import peak_of_program
from bert_jax.tools.compile.hlo import Totals, totals
from bert_jax.tools.compile.plan import Program

_NO_ROOM = ("RESOURCE_EXHAUSTED", "Ran out of memory", "out of memory")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program, for each device.

    Attributes:
      program: that was compiled.
      seconds: of the compiler.
      peak: bytes of memory, arguments and results included.
      temporaries: bytes of memory besides arguments and results.
      flops: of all operations, in FLOP; those of a loop count once; 0: the compiler does not say.
      accessed: bytes that operations read and write, also on the chip; those of a loop count once;
        0: the compiler does not say.
      moved: between the device's memory and the chip, and between devices.
      no_room: why it does not fit, in the compiler's words; empty if it does.
      executable: jax's compiled program; None if it does not fit.
    """

    program: Program
    seconds: float
    peak: int = 0
    temporaries: int = 0
    flops: float = 0.0
    accessed: float = 0.0
    moved: Totals = dataclasses.field(default_factory=Totals)
    no_room: str = ""
    executable: Any = None

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
        totals(compiled.as_text()),
        executable=compiled,
    )


def _reason(message: str) -> str:
    """Returns the first line of the compiler's message, which has the numbers."""
    return message.splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")


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
