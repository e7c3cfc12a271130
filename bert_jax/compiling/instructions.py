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
    counter, end = condition[test.operands[0]], _constant(condition, test.operands[1])
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
    old = [
        operand for operand in new.operands if _INDEX.findall(body[operand].rest) == [str(place)]
    ]
    added = [_constant(body, operand) for operand in new.operands if operand not in old]
    return added[0] if len(old) == len(added) == 1 else None


def _constant(by_name: Mapping[str, Instruction], name: str) -> int | None:
    while name in by_name and by_name[name].operation == "copy":
        name = by_name[name].operands[0]
    found = by_name.get(name)
    if found is None or found.operation != "constant":
        return None
    digits = re.match(r"-?\d+", found.rest)
    return int(digits[0]) if digits else None


def _by_name(instructions: Sequence[Instruction]) -> dict[str, Instruction]:
    return {instruction.name: instruction for instruction in instructions}


def _root(by_name: Mapping[str, Instruction]) -> Instruction:
    return next(instruction for instruction in by_name.values() if instruction.root)
