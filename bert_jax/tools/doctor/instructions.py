"""XLA's text of an optimized program, as instructions, and the trip counts of its loops."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)"
    r"|branch_computations=\{([^}]*)\}"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_INDEX = re.compile(r"\bindex=(\d+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+[0-9]+(?:e\dm\d\w*)?)\[([\d,]*)\](\{[^}]*\})?")
# Layouts end with the memory: none or S(0) is that of the device, all others are on the chip.
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    root: str | None  # of its computation, or None
    name: str
    shape: str
    operation: str
    rest: str  # operands, closing parenthesis, attributes

    @functools.cached_property
    def operands(self) -> list[str]:
        depth = 1
        for end, character in enumerate(self.rest):
            depth += (character == "(") - (character == ")")
            if not depth:
                return re.findall(r"%([\w.\-]+)", self.rest[:end])
        return []

    @property
    def called(self) -> list[str]:
        found = []
        for one, many in _CALLED.findall(self.rest):
            found += [one] if one else re.findall(r"[\w.\-]+", many)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of all its results."""
        return sum(size for size, _ in arrays(self.shape))

    @property
    def off_chip(self) -> int:
        """Bytes of its results that are in the device's memory."""
        return sum(size for size, on_chip in arrays(self.shape) if not on_chip)


def arrays(shape: str) -> Iterator[tuple[int, bool]]:
    """Yields the bytes of the arrays of "f32[768,3072]{1,0:T(8,128)S(1)}" or of a tuple of such,
    and whether they are on the chip."""
    for dtype, dimensions, layout in _ARRAY.findall(shape):
        count = math.prod(int(size) for size in dimensions.split(",") if size)
        bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
        yield count * bits // 8, bool(_ON_CHIP.search(layout))


Computation = dict[str, Instruction]  # by name, in order
Computations = dict[str, Computation]


def parse(text: str) -> tuple[Computations, str]:
    """Returns the instructions of each computation, and the name of the one that is started."""
    computations: Computations = {}
    entry, current = "", None
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            current = computations[match[2]] = {}
            entry = match[2] if match[1] else entry
        elif line.rstrip() == "}":  # the configuration of a kernel has lines that begin with it
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current[match[2]] = Instruction(*match.groups())
    return computations, entry


def root_of(computation: Computation) -> Instruction:
    """Returns the instruction whose result is that of its computation."""
    return next(instruction for instruction in computation.values() if instruction.root)


def trip_count(loop: Instruction, outside: Computation, computations: Computations) -> int | None:
    """Returns the trip count of a loop; None: it is not known.

    The compiler for TPUs does not write it. jax's loops count up from one constant while they are
    below another, which is the pattern that this function looks for.

    Args:
      loop: a `while`.
      outside: the computation that has it.
      computations: computations of the program.
    """
    if trips := _TRIPS.search(loop.rest):
        return int(trips[1])
    condition, body = (computations[name] for name in _LOOP.findall(loop.rest)[0])
    test = root_of(condition)
    if test.operation != "compare" or "direction=LT" not in test.rest:
        return None
    counter, end = _copied(condition, test.operands[0]), _constant(condition, test.operands[1])
    index = _INDEX.search(counter.rest)
    if end is None or not index:
        return None
    place = int(index[1])
    start = _constant(outside, outside[loop.operands[0]].operands[place])
    step = _step(body, root_of(body).operands[place], place)
    return None if start is None or not step else max(0, -(-(end - start) // step))


def _step(body: Computation, name: str, place: int) -> int | None:
    """Returns what is added to the element `place` of the loop's state; None: something else."""
    new = body[name]
    if new.operation != "add":
        return None
    is_old = [_INDEX.findall(_copied(body, o).rest) == [str(place)] for o in new.operands]
    if is_old not in ([True, False], [False, True]):
        return None
    return _constant(body, new.operands[is_old.index(False)])


def _constant(computation: Computation, name: str) -> int | None:
    found = _copied(computation, name)
    digits = re.match(r"-?\d+", found.rest) if found.operation == "constant" else None
    return int(digits[0]) if digits else None


def _copied(computation: Computation, name: str) -> Instruction:
    """Returns what is copied, if the instruction is a copy, or else the instruction."""
    found = computation[name]
    return _copied(computation, found.operands[0]) if found.operation == "copy" else found
