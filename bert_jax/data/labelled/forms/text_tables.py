"""The column of texts of a table: the texts of a file that has more than a text a line."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bert_jax.data.labelled.forms.columns import TEXTS, find_texts, is_header, known, listed
from bert_jax.data.labelled.missing import is_missing
from bert_jax.data.labelled.reading import ending_of, field, has_objects, read_objects, text
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import is_table

# Rows that are read to find the column.
_MAX_ROWS = 1000


@dataclass(frozen=True)
class TextColumn:
    """The column of texts of a file.

    Attributes:
      name: its name, or its number from 0 in a file without header.
      second: the column of second texts of pairs, `text_b`; None: there is none.
    """

    name: str | int
    second: str | int | None = None

    def read(self, path: str) -> Iterator[tuple[str, str, str | None]]:
        """Yields (place, text, second text) of each row; a cell without text is an empty text.

        Raises:
          UserError: a row has no such column, or something else than a text in it.
        """
        for where, row in read_rows(path, Counter(), not isinstance(self.name, int)):
            pair = (_text(row, name, where) for name in (self.name, self.second))
            yield where, next(pair) or "", next(pair)


def _text(row: dict[Any, Any], name: str | int | None, where: str) -> str | None:
    if name is None:
        return None
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


def find_column(path: str, column: str) -> TextColumn:
    """Returns the column of texts of a table.

    Args:
      path: the table.
      column: its name or number; "": the one that is known by its name or content.

    Raises:
      UserError: there is no column of texts, or there are two; or it cannot be told whether the
        first row has the names of the columns.
    """
    choose = "choose one with --column=NAME, or --column=0, 1, ... without a header"
    if column:
        return TextColumn(parse_column(column) or column)
    is_json = ending_of(path) not in (".csv", ".tsv")
    some = [row for _, row in islice(read_rows(path, Counter(), is_json, True), _MAX_ROWS)]
    if not is_json and some:
        cells = [list(row.values()) for row in some]
        header = is_header(cells)
        if (
            header
            and len(cells[0]) == 1
            and " " in cells[0][0].strip()
            and not known(TEXTS, cells[0])
        ):
            raise UserError(
                f"{path}: is {cells[0][0]!r} a text or the name of the column? {choose}."
            )
        some = [dict(zip(cells[0], row, strict=True)) for row in cells[1:]] if header else some
    if not some:
        raise UserError(f"{path} has no texts.")
    names = dict.fromkeys(name for row in some for name in row)
    columns = {name: [row.get(name) for row in some] for name in names}
    if {"text_a", "text_b"} <= set(names):
        return TextColumn("text_a", "text_b")
    first, second = find_texts(path, columns, {})
    if second != "":
        raise UserError(f"{path} has two columns of texts, {listed((first, second))}: {choose}.")
    return TextColumn(first)
