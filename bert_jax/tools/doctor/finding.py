"""What a check found, and how to fix it."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from bert_jax.files.errors import UserError

# `note`: worth knowing; `warning`: probably not what is wanted; `problem`: the run will not start,
# will not end, or will give useless results.
Level = Literal["ok", "note", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")
# Fraction of the free memory or disk above which a run may not fit: other programs use them too.
TIGHT = 0.85


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Level
    what: str  # the value, and what is expected
    fix: str = ""  # empty if there is nothing to fix, or `what` says it
    lines: tuple[str, ...] = ()  # details below it
    # Its numbers, as JSON values, for other programs.
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


ok = functools.partial(Finding, "ok")
note = functools.partial(Finding, "note")
warning = functools.partial(Finding, "warning")
problem = functools.partial(Finding, "problem")


def compared(what: str, needed: float, free: float, fix: str) -> Finding:
    """Returns the finding for something that needs `needed` bytes where `free` bytes are free."""
    if needed > free:
        return problem(what, fix)
    return warning(what, fix) if needed > TIGHT * free else ok(what)


def guarded(check: Iterator[Finding]) -> Iterator[Finding]:
    """Yields the findings of a check; an error that the user can fix ends it as a problem.

    Raises:
      Exception: any other error, which is a defect of this program.
    """
    try:
        yield from check
    except UserError as error:
        yield problem(" ".join(str(error).split()))
    except OSError as error:
        yield problem(": ".join(str(p) for p in (error.filename, error.strerror or error) if p))


def in_bytes(count: float) -> str:
    """Returns a number of bytes as "512 kB", "1.3 GB"."""
    for unit in ("bytes", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def in_words(seconds: float) -> str:
    """Returns a duration as "40 seconds", "12 minutes", "3.2 hours", "5.1 days"."""
    for unit, size, limit in (("seconds", 1, 90), ("minutes", 60, 90 * 60)):
        if seconds < limit:
            count = max(1, round(seconds / size))
            return f"{count} {unit if count > 1 else unit[:-1]}"
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:,.1f} days"
