"""Where the time of a training step goes: by part of the model, beside the floor of its operations.

    python -m benchmarks.step --models=tiny,mini --dtypes=bfloat16_products --profile

A part is found by the names that jax gives to operations: modules of flax, and the scope
"optimizer". A fusion counts as what its result is. The floor of an operation is its FLOPs at the
speed of the fastest matrix product, or its bytes at the speed of a copy, whichever takes longer,
both measured first on the same device. Operations that run at the same time count in full, so that
the parts may add up to more than a step.
"""

import collections
import glob
import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.tools.doctor.hlo import moved
from bert_jax.tools.doctor.instructions import Computations, Instruction, parse

# The first pattern that is found in an operation's name decides.
PARTS = (
    ("optimizer", r"/optimizer/"),
    ("dropout", r"[Dd]ropout"),
    ("embedding", r"/embeddings/"),
    ("attention", r"/attention/"),
    ("feed-forward", r"/layer_\d+/"),
    ("head and losses", r"jvp\("),
    ("masks", r"mask_batch|_uniform|_randint|threefry|sort|take_along_axis"),
    ("norms and others", r""),
)
# Operations that run other operations, which are measured themselves.
_CONTAINERS = ("while", "conditional", "call")
_PRODUCTS = ((1024, 1024, 1024), (2048, 768, 3072), (4096, 1024, 1024))
_COPIED = 1 << 25  # float32 numbers: more than fits into a processor's cache
_STEPS = 5
_NAME = re.compile(r'op_name="([^"]+)"')
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


class Speeds(NamedTuple):
    """The measured limits of a device: FLOP/s of matrix products, bytes/s of a copy."""

    product: float
    copy: float


class Operation(NamedTuple):
    """An operation of a compiled program: its part, its FLOPs, and the bytes that it moves."""

    part: str
    flops: float
    bytes: float

    def floor(self, speeds: Speeds) -> float:
        """Returns the minimum seconds."""
        return max(self.flops / speeds.product, self.bytes / speeds.copy)


def measure_speeds(dtype: str) -> Speeds:
    """Returns the limits of the first device, for products of operands of a model's `dtype`."""
    operand = jnp.float32 if dtype == "float32" else jnp.bfloat16

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.matmul(x, y, preferred_element_type=jnp.float32)

    fastest = 0.0
    for rows, inner, columns in _PRODUCTS:
        operands = jnp.ones((rows, inner), operand), jnp.ones((inner, columns), operand)
        fastest = max(fastest, 2.0 * rows * inner * columns / _seconds(product, *operands))
    array = jnp.zeros(_COPIED, jnp.float32)
    return Speeds(fastest, 2.0 * array.nbytes / _seconds(lambda x: x + 1, array))


def _seconds(function: Callable[..., jax.Array], *arrays: jax.Array) -> float:
    """Returns the shortest of ten times."""
    compiled, times = jax.jit(function), []
    for _ in range(11):
        start = time.perf_counter()
        compiled(*arrays).block_until_ready()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def operations(text: str) -> dict[str, Operation]:
    """Returns the operations of a program by name, from XLA's text of it."""
    computations, _ = parse(text)
    found = {}
    for computation in computations.values():
        for name, instruction in computation.items():
            if instruction.operation not in _CONTAINERS:
                bytes_moved = moved(instruction, computation, computations)
                flops = _flops(instruction, computation.get, computations)
                part = part_of(_name(instruction, computations))
                found[name] = Operation(part, flops, bytes_moved)
    return found


def part_of(name: str) -> str:
    """Returns the part of PARTS that an operation's name belongs to."""
    return next(part for part, pattern in PARTS if re.search(pattern, name))


def _name(instruction: Instruction, computations: Computations) -> str:
    """Returns jax's name of an operation; for a fusion without one, the last name inside."""
    names = _NAME.findall(instruction.rest)
    for called in instruction.called if not names else ():
        names += [_name(inner, computations) for inner in computations[called].values()]
    return next((name for name in reversed(names) if name.startswith("jit(")), "")


def _flops(
    instruction: Instruction,
    find: Callable[[str], Instruction | None],
    computations: Computations,
) -> float:
    """Returns the FLOPs of the matrix products in an operation."""
    if instruction.operation == "dot":
        left = find(instruction.operands[0])
        contracted = _CONTRACTED.search(instruction.rest)
        if left is None or contracted is None:
            return 0.0
        sizes = _sizes(left.shape)
        inner = math.prod(sizes[int(axis)] for axis in contracted[1].split(",") if axis)
        return 2.0 * inner * math.prod(_sizes(instruction.shape))
    return sum(
        _flops(inner, computations[called].get, computations)
        for called in (instruction.called if instruction.operation == "fusion" else ())
        for inner in computations[called].values()
    )


def _sizes(shape: str) -> list[int]:
    """ "f32[768,3072]{1,0}" -> [768, 3072]."""
    return [int(size) for size in re.findall(r"\[([\d,]*)\]", shape)[0].split(",") if size]


def trace(step: Callable[[], None], wait: Callable[[], None]) -> list[tuple[str, float]]:
    """Returns (name, seconds) of each operation that some steps ran.

    Args:
      step: starts a step.
      wait: waits for the device.
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(_STEPS):
                step()
                wait()
        (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        return list(read_trace(path))


def read_trace(path: str) -> Iterator[tuple[str, float]]:
    """Yields (name, seconds) of each operation in a file of jax.profiler."""
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            for event in line.events:
                name = dict(event.stats).get("hlo_op")
                if name is not None:
                    yield str(name), event.duration_ns / 1e9


def rows_of_parts(
    events: Iterable[tuple[str, float]], of_program: Mapping[str, Operation], speeds: Speeds
) -> dict[str, tuple[str, ...]]:
    """Returns the cells of each part, the slowest first: ms, share, floor in ms, times the floor.

    Args:
      events: (operation, seconds) of all traced steps.
      of_program: the program's operations.
      speeds: limits of the device.
    """
    times: dict[str, float] = collections.defaultdict(float)
    floors: dict[str, float] = collections.defaultdict(float)
    for name, seconds in events:
        if (operation := of_program.get(name)) is not None:
            times[operation.part] += seconds / _STEPS
            floors[operation.part] += operation.floor(speeds) / _STEPS
    whole = sum(times.values())
    order = sorted(times, key=lambda part: -times[part])
    parts = {part: (times[part], floors[part]) for part in order}
    parts["all parts"] = whole, sum(floors.values())
    return {
        part: (
            f"{seconds * 1e3:.1f}",
            f"{seconds / whole:.0%}",
            f"{floor * 1e3:.1f}",
            f"{seconds / floor:.2f}" if floor else "",
        )
        for part, (seconds, floor) in parts.items()
    }


def profile(
    step: Callable[[], None], wait: Callable[[], None], compiled: jax.stages.Compiled, dtype: str
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Returns a line about a step and the device, and `rows_of_parts`.

    Args:
      step: starts a step.
      wait: waits for the device.
      compiled: the program that runs in each step.
      dtype: the model's, which decides the fastest product.
    """
    times = []
    for _ in range(_STEPS + 1):
        start = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - start)
    speeds = measure_speeds(dtype)
    head = (
        f"a step takes {statistics.median(times[1:]) * 1e3:.1f} ms; the fastest product"
        f" {speeds.product / 1e9:,.0f} GFLOP/s, a copy {speeds.copy / 1e9:.1f} GB/s"
    )
    return head, rows_of_parts(trace(step, wait), operations(str(compiled.as_text())), speeds)
