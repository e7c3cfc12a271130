"""Reads contexts with several endings: SWAG's CSV, tables and JSON."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.data.labelled.reading import field, numbered, text, text_field
from bert_jax.data.labelled.table_rows import Row, read_rows
from bert_jax.files.errors import UserError

# Names of the columns of SWAG's endings.
ENDING = re.compile(r"ending(\d+)")


@dataclass(frozen=True)
class ChoiceColumns:
    """Which columns or fields hold what; SWAG's by default.

    Attributes:
      context: segment A.
      start: the text before each ending in segment B; None: nothing.
      endings: a column for each ending, or one field of JSON with a list of them; (): all columns
        ending0, ending1, ...
      label: number of the correct ending, from 0, or its letter, from A.
      id: column of the ids; None: the number of the row is the id.
    """

    context: str = "sent1"
    start: str | None = "sent2"
    endings: tuple[str, ...] = ()
    label: str = "label"
    id: str | None = None


def read_choices(
    path: str, counts: Counter, labelled: bool = True, columns: ChoiceColumns = ChoiceColumns()
) -> Iterator[ChoiceExample]:
    """Streams the examples of a table, which has a header.

    Args:
      path: a file (bert_jax.data.labelled.tables describes its form).
      counts: `empty_texts`: contexts without text, which are kept; and the counts of tables.
      labelled: whether labels are read; every row must have one then.
      columns: columns to read.

    Raises:
      UserError: naming the line, for missing columns, fewer than two endings, an empty ending, or
        an invalid label; or the file has no row.
    """
    rows = read_rows(path, counts)
    for number, (where, row) in numbered(rows, f"{path} has no examples."):
        context = text_field(row, columns.context, "task.text_a", where)
        start = "" if columns.start is None else text_field(row, columns.start, "its start", where)
        endings = _endings(row, columns.endings, where)
        label = _label(row, columns.label, len(endings), where) if labelled else None
        id = str(number) if columns.id is None else str(field(row, columns.id, "its id", where))
        counts["empty_texts"] += not context.strip()
        yield ChoiceExample(where, id, context, endings, start, label)


def _endings(row: Row, names: tuple[str, ...], where: str) -> tuple[str, ...]:
    if not names:
        numbered = (match for name in row if (match := ENDING.fullmatch(name)))
        names = tuple(match[0] for match in sorted(numbered, key=lambda match: int(match[1])))
    values = [field(row, name, "task.endings", where) for name in names]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if len(values) < 2:
        columns = ", ".join(map(repr, row))
        raise UserError(
            f"{where}: {len(values)} endings, but two or more are needed: set task.endings to"
            f" columns of {columns}."
        )
    endings = tuple(text(value, "an ending", where) for value in values)
    if empty := [number for number, ending in enumerate(endings) if not ending.strip()]:
        raise UserError(f"{where}: ending {empty[0]} is empty.")
    return endings


def _label(row: Row, name: str, num_endings: int, where: str) -> int:
    value = field(row, name, "task.label", where)
    written = str(value).strip()
    if len(written) == 1 and "A" <= written <= "Z":
        written = str(ord(written) - ord("A"))
    if isinstance(value, bool) or not written.isdecimal() or int(written) >= num_endings:
        raise UserError(
            f"{where}: the label {value!r} is not a number of an ending, 0 to {num_endings - 1}."
        )
    return int(written)
