r"""Reads the rows of tables: TSV, CSV, JSON, Parquet, datasets; writes CSV rows.

    form     recognized by                        rules
    TSV      .tsv, .txt, or a tab in line 1       one row per line, no quotes, as in GLUE's files
    CSV      .csv                                 RFC 4180, with commas, semicolons, tabs or |
    JSON     .json, .jsonl, or a JSON object in   one object per line, or an array of objects
             line 1
    Parquet  .parquet, .arrow, or a folder of     a row is an object
             such files
    dataset  tfds:NAME or tfds:NAME[SPLIT]        a record is an object; `idx` is its id

Names of compressed files end in .gz, .bz2, .xz or .zst after that. Repairs are counted, besides
those of bert_jax.data.labelled.reading:

    blank_lines          between rows: left out
    broken_rows          rows with too few columns: left out, where the caller allows it
    long_rows            rows with too many, likewise: the last columns are left out
"""

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, TextIO

from bert_jax.data.labelled.reading import (
    ending_of,
    has_objects,
    place,
    read_lines,
    read_objects,
)
from bert_jax.files.errors import UserError

Row = dict[Any, Any]

# Python's own limit is 131072 characters; a document may be longer.
_MAX_FIELD = 1 << 30
# Possible separators of CSV, the first of equally likely ones wins; number of lines looked at.
_SEPARATORS, _MAX_LINES = "\t;,|", 200


def form_of(path: str) -> str:
    """Returns `tsv`, `csv` or `json`, the form of a file; for Parquet and datasets `json`.

    Raises:
      UserError: it cannot be recognized from the name or the first line.
    """
    if (ending := ending_of(path)) in (".tsv", ".csv"):
        return ending[1:]
    if has_objects(path):
        return "json"
    if ending == ".txt" or len(first_row(path)) > 1:
        return "tsv"
    raise UserError(
        f"{path} is not a table: its name must end in .tsv, .csv or .json, or line 1 have a tab."
    )


def read_rows(
    source: str,
    counts: Counter,
    has_header: bool = True,
    leave_out_broken_rows: bool = False,
) -> Iterator[tuple[str, Row]]:
    """Streams (place, row) of a table; a row is a dict by column name, or by number from 0.

    Raises:
      UserError: as `read_table`.
    """
    form = form_of(source)
    if form == "json":
        yield from read_objects(source, counts)
        return
    header: list[Any] = []
    cells = _csv_cells(source, counts) if form == "csv" else _tsv_cells(source, counts)
    for number, row in cells:
        where = place(source, number)
        if not header:
            header = _checked_header(row, source) if has_header else list(range(len(row)))
            if has_header:
                continue
        if len(row) != len(header):
            if not leave_out_broken_rows:
                raise UserError(
                    f"{where}: {len(row)} columns where"
                    f" {'the header has' if has_header else 'the first row has'} {len(header)}."
                )
            counts["broken_rows" if len(row) < len(header) else "long_rows"] += 1
            if len(row) < len(header):
                continue
        yield where, dict(zip(header, row, strict=False))


def first_row(path: str) -> list[str]:
    """The cells of the first line of a TSV; none in an empty file."""
    return next((row for _, row in _tsv_cells(path, Counter())), [])


def _checked_header(row: list[str], path: str) -> list[str]:
    header = [name.strip() for name in row]
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise UserError(f"{path}: the header has {', '.join(map(repr, twice))} more than once.")
    return header


def _tsv_cells(path: str, counts: Counter) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the line, cells) of each row."""
    for number, line in read_lines(path, counts):
        if line.strip():
            yield number, line.split("\t")
        else:
            counts["blank_lines"] += 1


def _separator(path: str) -> str:
    """Returns the separator of a CSV: the one that gives the most rows the width of the first.

    Among several, one that a space always follows is more likely to be punctuation in texts.
    """
    lines = [line for _, line in islice(read_lines(path, Counter()), _MAX_LINES)]

    def likelihood(mark: str) -> tuple[float, bool]:
        reader = csv.reader((line.replace("\r", " ") + "\n" for line in lines), delimiter=mark)
        rows = [row for row in reader if row]
        width = len(rows[0]) if rows else 0
        if width < 2:
            return 0.0, False
        if len(lines) == _MAX_LINES and len(rows) > 1:
            rows.pop()  # it may go on
        cells = [cell for row in rows for cell in row[1:]]
        is_prose = all(cell.startswith(" ") for cell in cells)
        return sum(len(row) == width for row in rows) / len(rows), not is_prose

    csv.field_size_limit(_MAX_FIELD)
    best = max(_SEPARATORS, key=likelihood)
    return best if likelihood(best)[0] else ","


def csv_writer(file: TextIO, **style: Any) -> Any:
    r"""Returns a csv.writer whose rows end in '\n', and which quotes cells with '\r' too."""

    class Rows:
        def write(self, row: str) -> None:
            file.write(row.removesuffix("\r\n") + "\n")

    return csv.writer(Rows(), lineterminator="\r\n", **style)


def _csv_cells(path: str, counts: Counter) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, cells) of each row."""
    csv.field_size_limit(_MAX_FIELD)
    lines = (line + "\n" for _, line in read_lines(path, counts))
    reader = csv.reader(lines, delimiter=_separator(path), strict=True)
    number = 1
    try:
        for row in reader:
            if row:
                yield number, row
            else:
                counts["blank_lines"] += 1
            number = reader.line_num + 1
    except csv.Error as error:
        problem = str(error)
        if "end of data" in problem:
            problem = "a quote that is never closed"
        elif "new-line character" in problem:
            problem = "a carriage return in a cell without quotes"
        raise UserError(f"{place(path, number)}: a broken row of CSV ({problem}).") from None
