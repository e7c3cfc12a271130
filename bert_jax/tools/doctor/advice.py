"""Settings that make a run fit into memory, found by compiling its programs with them.

Three are tried, each with as many rows per microbatch as fit:

    microbatches   parameters are read once for each of them
    remat          blocks are computed again in the backward pass, a third more FLOPs
    fsdp           parameters and optimizer state are split over the devices that split the batch

Only the programs that did not fit are compiled. Rows are tried from the most to the fewest, since
what is far from fitting is refused in seconds, and what fits takes minutes to compile.
"""

import dataclasses
import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.tools.doctor.compiled import GIB, Compiled, compile_program
from bert_jax.tools.doctor.cost import describe
from bert_jax.tools.doctor.finding import Finding, note
from bert_jax.tools.doctor.programs import programs
from bert_jax.tools.doctor.target import Target
from bert_jax.training.run import Run, make_checked_mesh

_MICROBATCH, _EVALUATION = "microbatch_size", "eval.batch_size"
# Value of a field by its dotted name.
Changes = dict[str, Any]
_NONE = note("No setting with which it fits was found.", "Use more devices, or shorter rows.")
# Yields what does not fit; returns the finding of changes that do, or None.
Search = Generator[Finding, None, Finding | None]


def advise(run: Run, target: Target, refused: Sequence[Compiled]) -> Iterator[Finding]:
    """Yields what was tried and, as fixes, the settings with which the run fits.

    Args:
      run: the run, or the result of `plan`.
      target: the devices.
      refused: its programs that do not fit.
    """
    refused = sorted(refused, key=lambda c: c.program.rows * c.program.length, reverse=True)
    evaluations = [c for c in refused if c.program.name == "evaluation"]
    steps = [c for c in refused if c.program.name != "evaluation"]
    search, changes = _Search(run, target), {}
    if evaluations:  # in smaller batches, with the same results
        smaller = search.rows(evaluations)[1:]
        found = yield from search.first(changes, _EVALUATION, evaluations, smaller)
        if found is None or not steps:
            yield found or _NONE
            return
        changes = found.values["changes"]
    found = yield from search.first(changes, _MICROBATCH, steps, search.rows(steps)[1:])
    if found:
        yield found
    fitting = found.values["changes"][_MICROBATCH] if found else 0
    others = _alternatives(run, steps)
    for other, saved in others:
        more = [rows for rows in search.rows(steps, saved) if rows > fitting]
        if setting := (yield from search.first(changes | other, _MICROBATCH, steps, more)):
            yield (found := setting)
    if not found and len(others) > 1:
        together = changes | others[0][0] | others[1][0]
        rows = search.rows(steps, math.inf)
        found = yield from search.first(together, _MICROBATCH, steps, rows)
        if found:
            yield found
    if not found:
        yield _NONE


def _alternatives(run: Run, steps: Sequence[Compiled]) -> list[tuple[Changes, float]]:
    """Returns changes besides the number of rows, and the bytes per device that each can save."""
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

    def __init__(self, run: Run, target: Target):
        self._run, self._target = run, target

    def rows(self, refused: Sequence[Compiled], saved: float = 0.0) -> list[int]:
        """Returns the numbers of rows that may fit, those of the run first, descending.

        n of N rows need at least n / N of the temporaries of N rows.

        Args:
          refused: programs that do not fit.
          saved: maximum number of bytes that other settings save.
        """
        whole, room = _rows_of(refused), max(c.room(self._target.room) for c in refused)

        def may_fit(rows: int) -> bool:
            least = (
                sum(c.program.sizes.values()) + c.temporaries * min(1, rows / _rows_of([c]))
                for c in refused
            )
            return not room or max(least) - saved <= room

        common = math.gcd(*(p.batch_size for p in self._run.phases if p.share))
        shards = sharding.batch_shards(self._run.mesh)
        smaller = [n for n in range(shards, whole, shards) if common % n == 0]
        numbers = [whole, *reversed(smaller)]
        return [n for n in numbers if n == whole and not saved or may_fit(n)]

    def first(
        self, changes: Changes, field: str, refused: Sequence[Compiled], rows: Sequence[int]
    ) -> Search:
        """Tries numbers of rows until the programs fit."""
        for number in rows:
            tried = changes if number == _rows_of(refused) else changes | {field: number}
            flags = " ".join(f"--config.{name}={value}" for name, value in tried.items())
            try:
                compiled = self._compile(tried, refused)
            except UserError as error:  # such as a matrix that so many devices cannot split
                yield note(f"{flags}: {error}")
                return None
            last = compiled[-1]
            if last.fits(self._target.room):
                return self._setting(tried, flags, compiled)
            yield note(f"{flags}: {last.name} does not fit; compiled in {last.seconds:.0f} s.")
        return None

    def _setting(self, changes: Changes, flags: str, compiled: Sequence[Compiled]) -> Finding:
        found = [describe(each, self._target).values for each in compiled]
        needs = []
        for each, values in zip(compiled, found, strict=True):
            limits = values["bound"]
            time = f", at least {limits['seconds'] * 1e3:.1f} ms" if limits else ""
            needs.append(f"{each.name}, {each.peak / GIB:.2f} GiB{time}")
        values = {"changes": changes, "programs": found}
        return Finding("note", f"It fits: {'; '.join(needs)}.", flags, values=values)

    def _compile(self, changes: Changes, refused: Sequence[Compiled]) -> list[Compiled]:
        config = self._run.config.replace(changes)
        mesh = make_checked_mesh(config, self._target.devices)
        run = dataclasses.replace(self._run, config=config, mesh=mesh)
        by_name = {(program.phase, program.name): program for program in programs(run)}
        found = []
        for one in refused:
            found.append(compile_program(by_name[one.program.phase, one.program.name]))
            if not found[-1].fits(self._target.room):
                break
        return found


def _rows_of(refused: Sequence[Compiled]) -> int:
    return max(c.program.rows // c.program.microbatches for c in refused)
