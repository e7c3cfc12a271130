"""Rows that lack what an example needs, a text or a label: left out, or all reported at once."""

import math
from collections import Counter, defaultdict
from typing import Any

from bert_jax.files.errors import UserError

# Places that a message lists.
_SHOWN = 5
# What stands for a number that is not known.
_NO_NUMBERS = ("na", "n/a", "null", "none", "-", "?")


class MissingRows:
    """Collects the rows of a file that lack something.

    Args:
      source: the file.
      counts: receives `rows_without_text` and `rows_without_label`, if rows are left out.
      skip: whether rows are left out.
    """

    def __init__(self, source: str, counts: Counter, skip: bool):
        self._source, self._counts, self._skip = source, counts, skip
        self._places: dict[str, list[str]] = defaultdict(list)
        self._absent: dict[Any, tuple[int, str]] = {}
        self._rows = 0

    def add(self, where: str, what: str) -> None:
        """Adds a row that has no `what`, "text" or "label"."""
        self._places[what].append(where.removeprefix(f"{self._source}, "))

    def look(self, where: str, row: dict[Any, Any], names: dict[Any, str]) -> None:
        """Looks at a row of any kind; `names` are its columns, and the field that names each."""
        self._rows += 1
        for name, role in names.items():
            if name not in row:
                count, message = self._absent.get(name, (0, ""))
                columns = ", ".join(f"{column!r}"[:40] for column in row) or "none"
                message = message or f"{where}: no column {name!r} ({role}); it has {columns}."
                self._absent[name] = count + 1, message

    def finish(self) -> None:
        """Counts the rows that were left out.

        Raises:
          UserError: rows lack something and are not left out, or no row has a column.
        """
        for count, message in self._absent.values():
            if count == self._rows:
                raise UserError(message)
        if self._places and not self._skip:
            lacks = " and ".join(
                f"{len(places):,} of {self._rows:,} rows have no {what}"
                f" ({', '.join(places[:_SHOWN])}{', ...' if len(places) > _SHOWN else ''})"
                for what, places in sorted(self._places.items())
            )
            raise UserError(
                f"{self._source}: {lacks}. Fill them in, or leave them out with"
                " --config.task.on_missing=skip."
            )
        for what, places in self._places.items():
            self._counts[f"rows_without_{what}"] += len(places)


def is_missing(value: Any) -> bool:
    """Returns whether a value of a row is no text and no label: None, NaN or blank."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_missing_label(value: Any, is_number: bool = False) -> bool:
    """Returns whether a value is no label; "nan", which programs write for None, is none either.

    Args:
      value: the value.
      is_number: whether labels are numbers, for which "NA", "null", "-" and the like stand too.
    """
    if is_missing(value):
        return True
    written = value.strip().lower() if isinstance(value, str) else ""
    return written == "nan" or (is_number and written in _NO_NUMBERS)
