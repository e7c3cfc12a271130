"""What a compiled program needs: memory, FLOPs, bytes of memory that it reads and writes, and what
the devices send each other."""

import bisect
import dataclasses
import re
import time
from collections.abc import Callable, Iterator

import jax

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.devices.chips import Chip
from bert_jax.devices.memory import peak_of_program
from bert_jax.files.errors import UserError
from bert_jax.tools.compile.hlo import Totals, totals
from bert_jax.tools.compile.plan import Program, programs
from bert_jax.training.run import Run

_NO_ROOM = ("RESOURCE_EXHAUSTED", "Ran out of memory", "out of memory")
# Of a TPU's compiler: "... HLO temporaries (19.25G) exceeds available HBM (15.75G)".
_NEEDED = re.compile(r"temporaries \(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program, for each device.

    Attributes:
      program: the compiled program.
      seconds: compile time.
      peak: bytes of memory, arguments and results included.
      temporaries: bytes of memory besides arguments and results; 0 where the compiler refuses the
        program and does not say.
      flops: FLOP of all operations; those of a loop count once; 0: the compiler does not say.
      accessed: bytes that operations read and write, also on the chip; those of a loop count once;
        0: the compiler does not say.
      moved: between the device's memory and the chip, and between devices.
      no_room: why it does not fit, in the compiler's words; empty if it does.
    """

    program: Program
    seconds: float
    peak: int = 0
    temporaries: int = 0
    flops: float = 0.0
    accessed: float = 0.0
    moved: Totals = dataclasses.field(default_factory=Totals)
    no_room: str = ""

    def fits(self, room: int) -> bool:
        """Returns whether it fits into `room` bytes; 0: into what the compiler knows of."""
        return not self.no_room and (not room or self.peak <= room)

    def room(self, room: int) -> int:
        """Returns `room`, or what the compiler says of a device that it refuses a program for; 0:
        not known."""
        found = _NEEDED.search(self.no_room)
        return room or (int(float(found[2]) * (1 << 30)) if found else 0)


def compile_program(program: Program) -> Compiled:
    """Compiles a program, and returns what the compiler says; also if it does not fit."""
    lowered = program.function.lower(*program.arguments)
    started = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if not any(words in str(error) for words in _NO_ROOM):
            raise
        # The first line has the numbers.
        reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
        needed = _NEEDED.search(reason)
        return Compiled(
            program,
            time.perf_counter() - started,
            temporaries=int(float(needed[1]) * (1 << 30)) if needed else 0,
            no_room=reason,
        )
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
    )


def largest_microbatch(
    run: Run, phase: Phase, room: int, report: Callable[[str], None]
) -> Compiled:
    """Returns the step with the largest microbatch of a phase that fits.

    The memory grows with the microbatch, so that the divisors of the batch are bisected.

    Args:
      run: result of `plan`.
      phase: phase of the run.
      room: bytes of memory of a device; see `Compiled.fits`.
      report: gets a line for each program.

    Raises:
      UserError: none fits.
    """
    fitting: list[Compiled] = []  # ascending, as a bisection finds them

    def is_too_large(size: int) -> bool:
        step = next(program for program in programs(run, size) if program.phase == phase)
        found = compile_program(step)
        fits = found.fits(room)
        report(f"  microbatch of {size:,} rows: {'fits' if fits else 'does not fit'}")
        if fits:
            fitting.append(found)
        return not fits

    sizes = [*microbatches(phase.batch_size, sharding.batch_shards(run.mesh))]
    bisect.bisect_left(sizes, True, key=is_too_large)
    if not fitting:
        raise UserError(
            f"No microbatch of {phase.sequence_length} tokens fits: use more devices,"
            " config.mesh.fsdp, or config.model.remat=True."
        )
    return fitting[-1]


def microbatches(batch_size: int, shards: int) -> Iterator[int]:
    """Yields the numbers of rows that divide a batch and that the mesh can split, ascending."""
    return (n for n in range(shards, batch_size + 1, shards) if batch_size % n == 0)


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
