"""What a compiled program needs: memory, FLOPs, bytes of memory that it reads and writes, and what
the devices send each other."""

import dataclasses
import functools
import re
import time
from typing import Any

import jax

from bert_jax.devices.memory import peak_of_program
from bert_jax.tools.doctor.hlo import Totals, totals
from bert_jax.tools.doctor.programs import Program

GIB = 1 << 30
_NO_ROOM = ("RESOURCE_EXHAUSTED", "Ran out of memory", "out of memory")
# From a TPU's compiler: "... HLO temporaries (19.25G) exceeds available HBM (15.75G)".
_NEEDED = re.compile(r"temporaries \(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program, for each device; 0 where it does not say."""

    program: Program
    seconds: float  # to trace and compile it
    peak: int = 0  # bytes, arguments and results included; a lower bound if it was refused
    temporaries: int = 0  # bytes besides arguments and results
    flops: float = 0.0  # of all operations; those of a loop count once
    accessed: float = 0.0  # bytes read and written, also on the chip; those of a loop count once
    no_room: str = ""  # why it does not fit, in the compiler's words; empty if it does
    executable: Any = None  # None: it does not fit

    @property
    def name(self) -> str:
        """Returns "step, 256 x 128 tokens in 4 microbatches"."""
        program = self.program
        parts = f" in {program.microbatches:,} microbatches" if program.microbatches > 1 else ""
        return f"{program.name}, {program.rows:,} x {program.length:,} tokens{parts}"

    @functools.cached_property
    def moved(self) -> Totals:
        """What moves between the device's memory and the chip, and between devices."""
        return totals(self.executable.as_text()) if self.executable else Totals()

    def fits(self, room: int) -> bool:
        """Returns whether it fits into `room` bytes; 0: into the memory known to the compiler."""
        return not self.no_room and (not room or self.peak <= room)

    def room(self, room: int) -> int:
        """Returns `room`, or else the memory that the compiler states when it refuses a program; 0:
        not known."""
        return room or _needed(self.no_room)[1]


def _needed(reason: str) -> tuple[int, int]:
    """Returns the bytes of temporaries, and those available, as a TPU's compiler states them."""
    found = _NEEDED.search(reason)
    return (int(float(found[1]) * GIB), int(float(found[2]) * GIB)) if found else (0, 0)


def compile_program(program: Program) -> Compiled:
    """Compiles a program, and returns what the compiler says, even if it does not fit."""
    started = time.perf_counter()
    lowered = program.function.lower(*program.arguments)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if not any(words in str(error) for words in _NO_ROOM):
            raise
        # The first line has the numbers.
        reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
        temporaries, _ = _needed(reason)
        peak, seconds = temporaries + sum(program.sizes.values()), time.perf_counter() - started
        return Compiled(program, seconds, peak, temporaries, no_room=reason)
    seconds = time.perf_counter() - started
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return Compiled(
        program,
        seconds,
        peak_of_program(compiled),
        memory.temp_size_in_bytes if memory else 0,
        costs.get("flops", 0.0),
        costs.get("bytes accessed", 0.0),
        executable=compiled,
    )
