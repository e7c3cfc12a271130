"""XLA's text of an optimized program, as instructions, and how often its loops turn."""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)"
    r"|branch_computations=\{([^}]*)\}"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_INDEX = re.compile(r"\bindex=(\d+)")


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


Computations = dict[str, list[Instruction]]


def parse(text: str) -> tuple[Computations, str]:
    """Returns the instructions of each computation, and the name of the one that is started."""
    computations: Computations = {}
    entry, current = "", None
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            current = computations[match[2]] = []
            entry = match[2] if match[1] else entry
        elif line.rstrip() == "}":  # the configuration of a kernel has lines that begin with it
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.append(Instruction(*match.groups()))
    return computations, entry


def turns_of(
    loop: Instruction, outside: Sequence[Instruction], computations: Computations
) -> int | None:
    """Returns how often a loop turns; None: it is not known.

    The compiler for TPUs does not say. Loops of jax count up from a constant while they are below
    another, which is what is looked for.

    Args:
      loop: a `while`.
      outside: the computation that has it.
      computations: of the program.
    """
    if trips := _TRIPS.search(loop.rest):
        return int(trips[1])
    condition, body = (_by_name(computations[name]) for name in _LOOP.findall(loop.rest)[0])
    before, test = _by_name(outside), _root(condition)
    if test.operation != "compare" or "direction=LT" not in test.rest:
        return None
    counter, end = _copied(condition, test.operands[0]), _constant(condition, test.operands[1])
    place = _INDEX.search(counter.rest)
    if end is None or not place:
        return None
    start = _constant(before, before[loop.operands[0]].operands[int(place[1])])
    step = _step(body, _root(body).operands[int(place[1])], int(place[1]))
    return None if start is None or not step else max(0, -(-(end - start) // step))


def _step(body: Mapping[str, Instruction], name: str, place: int) -> int | None:
    """Returns what is added to the element `place` of the loop's state; None: something else."""
    new = body[name]
    if new.operation != "add":
        return None
    is_old = [_INDEX.findall(_copied(body, o).rest) == [str(place)] for o in new.operands]
    if is_old not in ([True, False], [False, True]):
        return None
    return _constant(body, new.operands[is_old.index(False)])


def _constant(by_name: Mapping[str, Instruction], name: str) -> int | None:
    found = _copied(by_name, name)
    digits = re.match(r"-?\d+", found.rest) if found.operation == "constant" else None
    return int(digits[0]) if digits else None


def _copied(by_name: Mapping[str, Instruction], name: str) -> Instruction:
    """Returns what is copied, if the instruction is a copy, or else the instruction."""
    found = by_name[name]
    return _copied(by_name, found.operands[0]) if found.operation == "copy" else found


def _by_name(instructions: Sequence[Instruction]) -> dict[str, Instruction]:
    return {instruction.name: instruction for instruction in instructions}


def _root(by_name: Mapping[str, Instruction]) -> Instruction:
    return next(instruction for instruction in by_name.values() if instruction.root)
