"""The text column of a table: the texts of a file with more than one text per line."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bert_jax.data.labelled.cells import is_missing
from bert_jax.data.labelled.forms.columns import find_texts
from bert_jax.data.labelled.forms.table import POSITIVES, TEXTS, Table, is_header, known, listed
from bert_jax.data.labelled.reading import ending_of, field, has_objects, read_objects, text
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import is_table

# Rows that are read to find the column.
_MAX_ROWS = 1000
CHOOSE = "choose one with --column=NAME, or --column=0, 1, ... without a header"


@dataclass(frozen=True)
class TextColumn:
    """The text column of a file.

    Attributes:
      name: its name, or its number from 0 in a file without a header.
      second: the column of second texts of pairs, `text_b`; None: there is none.
    """

    name: str | int
    second: str | int | None = None

    def read(self, path: str) -> Iterator[tuple[str, str, str | None]]:
        """Yields (place, text, second text) of each row; a cell without text is an empty text."""
        for where, row in read_rows(path, Counter(), not isinstance(self.name, int)):
            second = None if self.second is None else _text(row, self.second, where)
            yield where, _text(row, self.name, where), second


def _text(row: dict[Any, Any], name: str | int, where: str) -> str:
    value = field(row, name, "its texts", where)
    return "" if is_missing(value) else text(value, repr(name), where)


def has_columns(path: str) -> bool:
    """Returns whether a file is a table: by its name, or by its first object.

    Objects with `text_a` are texts or pairs, and may stand among lines of text.
    """
    if path.startswith("tfds:") or is_table(path) or ending_of(path) in (".csv", ".tsv"):
        return True
    if not os.path.isfile(path) or not has_objects(path):
        return False
    _, first = next(read_objects(path, Counter()), ("", {"text_a": ""}))
    return "text_a" not in first


def find_column(path: str, column: str, choose: str = CHOOSE) -> TextColumn:
    """Returns the column of texts of a table.

    Args:
      path: the table.
      column: its name or number; "": the one that is known by its name or content.
      choose: how the user names one, for messages.

    Raises:
      UserError: none or two have texts, or the first row may be a text or a header.
    """
    if column:
        name = parse_column(column)
        assert name is not None  # not empty
        return TextColumn(name)
    is_json = ending_of(path) not in (".csv", ".tsv")
    some = [row for _, row in islice(read_rows(path, Counter(), is_json, True), _MAX_ROWS)]
    cells = [] if is_json else [list(row.values()) for row in some]
    if cells and is_header(cells):
        names = cells[0]
        if len(names) == 1 and " " in names[0].strip() and not known(TEXTS, names):
            raise UserError(f"{path}: is {names[0]!r} a text or the name of the column? {choose}.")
        some = [dict(zip(names, row, strict=True)) for row in cells[1:]]
    if not any(some):
        raise UserError(f"{path} has no texts.")
    table = Table.of(path, some, {})
    if {"text_a", "text_b"} <= table.columns.keys():
        return TextColumn("text_a", "text_b")
    first, second = table.pair(POSITIVES) or find_texts(table)
    if second != "":
        raise UserError(f"{path} has two columns of texts, {listed((first, second))}: {choose}.")
    return TextColumn(first)
