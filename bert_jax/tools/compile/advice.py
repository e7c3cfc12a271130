"""Settings with which a run fits that does not: found by compiling its programs with them.

Three are tried, each with as many rows of a microbatch as fit:

    microbatches   parameters are read once for each of them
    remat          blocks are computed again in the backward pass, a third more FLOPs
    fsdp           parameters and optimizer state are split over the devices that split the batch

Only the programs that did not fit are compiled. Rows are tried from the most to the fewest, since
what is far from fitting is refused in seconds, and what fits takes minutes to compile.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.tools.compile.plan import programs
from bert_jax.tools.compile.program import Compiled, compile_program, microbatches
from bert_jax.tools.compile.target import Target
from bert_jax.training.run import Run, make_checked_mesh

_MICROBATCH, _EVALUATION = "microbatch_size", "eval.batch_size"
# Value of a field by its dotted name.
Changes = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Changes of a configuration with which the programs fit that did not.

    Attributes:
      changes: values by the dotted name of a field.
      compiled: those programs, with the changes.
    """

    changes: Changes
    compiled: tuple[Compiled, ...]

    @property
    def flags(self) -> str:
        """The changes as words of a command line."""
        return " ".join(f"--config.{name}={value}" for name, value in self.changes.items())


def advise(
    run: Run, target: Target, refused: Sequence[Compiled], report: Callable[[str], None]
) -> Iterator[Setting]:
    """Yields settings with which a run fits; none if none was found.

    Args:
      run: result of `plan`.
      target: the devices.
      refused: its programs that do not fit.
      report: gets a line for each attempt.
    """
    refused = sorted(refused, key=lambda c: c.program.rows * c.program.length, reverse=True)
    evaluations = [c for c in refused if c.program.name == "evaluation"]
    steps = [c for c in refused if c.program.name != "evaluation"]
    search, changes = _Search(run, target, report), {}
    if evaluations:  # in smaller batches, with the same results
        smaller = search.rows(evaluations)[1:]
        found = search.first(changes, _EVALUATION, evaluations, smaller)
        if found is None or not steps:
            yield from (found,) if found else ()
            return
        changes = found.changes
    found = search.first(changes, _MICROBATCH, steps, search.rows(steps)[1:])
    if found:
        yield found
    fitting = found.changes[_MICROBATCH] if found else 0
    others = _alternatives(run, steps)
    for other, saved in others:
        more = [rows for rows in search.rows(steps, saved) if rows > fitting]
        if setting := search.first(changes | other, _MICROBATCH, steps, more):
            yield (found := setting)
    if not found and len(others) > 1:
        together = changes | others[0][0] | others[1][0]
        found = search.first(together, _MICROBATCH, steps, search.rows(steps, math.inf))
        yield from (found,) if found else ()


def _alternatives(run: Run, steps: Sequence[Compiled]) -> list[tuple[Changes, float]]:
    """Returns changes besides the number of rows, and the bytes of a device that each can save."""
    found: list[tuple[Changes, float]] = []
    if run.config.get("model.remat") is False:
        found.append(({"model.remat": True}, math.inf))
    data, fsdp = run.mesh.shape["data"], run.mesh.shape["fsdp"]
    if data > 1:
        sizes = steps[0].program.sizes  # gradients are as large as parameters
        state = 2 * sizes.get("parameters", 0) + sizes.get("optimizer", 0)
        changes = {"mesh.data": 1, "mesh.fsdp": data * fsdp}
        found.append((changes, state * (1 - 1 / data)))
    return found


class _Search:
    """Compiles the programs of a run with other settings."""

    def __init__(self, run: Run, target: Target, report: Callable[[str], None]):
        self._run, self._target, self._report = run, target, report

    def rows(self, refused: Sequence[Compiled], saved: float = 0.0) -> list[int]:
        """Returns the numbers of rows that may fit, those of the run first, descending.

        n of N rows need at least n / N of the temporaries of N rows.

        Args:
          refused: programs that do not fit.
          saved: bytes that other settings save at most.
        """
        whole, room = _rows_of(refused), max(c.room(self._target.room) for c in refused)

        def may_fit(rows: int) -> bool:
            least = (
                sum(c.program.sizes.values()) + c.temporaries * min(1, rows / _rows_of([c]))
                for c in refused
            )
            return not room or max(least) - saved <= room

        common = math.gcd(*(p.batch_size for p in self._run.phases if p.share))
        smaller = microbatches(common, sharding.batch_shards(self._run.mesh))
        numbers = [whole, *sorted((n for n in smaller if n < whole), reverse=True)]
        return [n for n in numbers if n == whole and not saved or may_fit(n)]

    def first(
        self, changes: Changes, field: str, refused: Sequence[Compiled], rows: Sequence[int]
    ) -> Setting | None:
        """Returns the changes with the first number of rows with which the programs fit."""
        for number in rows:
            tried = changes if number == _rows_of(refused) else changes | {field: number}
            setting = Setting(tried, ())
            try:
                compiled = self._compile(setting, refused)
            except UserError as error:  # such as a matrix that so many devices cannot split
                self._report(f"  {setting.flags}: {error}")
                return None
            if compiled:
                return Setting(tried, compiled)
        return None

    def _compile(self, setting: Setting, refused: Sequence[Compiled]) -> tuple[Compiled, ...]:
        """Returns the programs that were refused with a setting; () if one does not fit."""
        config = self._run.config.replace(setting.changes)
        mesh = make_checked_mesh(config, self._target.devices)
        run = dataclasses.replace(self._run, config=config, mesh=mesh)
        by_name = {(program.phase, program.name): program for program in programs(run)}
        found = []
        for program in (by_name[c.program.phase, c.program.name] for c in refused):
            compiled = compile_program(program)
            fits = "fits" if compiled.fits(self._target.room) else "does not fit"
            what = f"{program.name} of {program.length} tokens"
            self._report(f"  {setting.flags}: {what} {fits}; compiled in {compiled.seconds:.0f} s")
            if not compiled.fits(self._target.room):
                return ()
            found.append(compiled)
        return tuple(found)


def _rows_of(refused: Sequence[Compiled]) -> int:
    """Returns the rows of a microbatch; the most, of several programs."""
    return max(c.program.rows // c.program.microbatches for c in refused)
