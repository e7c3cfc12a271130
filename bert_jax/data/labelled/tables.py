r"""Reads texts and pairs of texts with labels: TSV, CSV, JSON, Parquet, datasets, plain lines.

    form     recognized by                        rules
    TSV      .tsv, .txt, or a tab in line 1       a row a line, no quotes, as in GLUE's files
    CSV      .csv                                 RFC 4180; if line 1 has no comma: ; or tabs
    JSON     .json, .jsonl, or a JSON object in   an object a line, or one array of objects
             line 1
    Parquet  .parquet, .arrow, or a folder of     a row is an object
             such files
    dataset  tfds:NAME or tfds:NAME[SPLIT]        a record is an object; `idx` is its id

Names of compressed files end in .gz, .bz2, .xz or .zst after that. Repairs are counted, besides
those of bert_jax.data.labelled.reading:

    blank_lines          between rows: left out
    empty_texts          rows whose text_a or text_b is empty: kept
    labels_stripped      white space around a label: dropped
    broken_rows          rows with too few columns: left out, where the caller allows it
    long_rows            rows with too many, there: the last columns are left out
    rows_left_out        rows that `Columns.keep` does not keep
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.reading import (
    ending_of,
    field,
    has_objects,
    numbered,
    place,
    read_lines,
    read_objects,
    text_field,
)
from bert_jax.files.errors import UserError

Row = dict[Any, Any]

# Python's own limit is 131072 characters; a document may be longer.
_MAX_FIELD = 1 << 30
# A quoted cell of CSV, or its beginning in the first of several lines.
_QUOTED = re.compile(r'"(?:[^"]|"")*(?:"|$)')
_TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by name in the header or, without header, by number from 0.

    Attributes:
      label: a column with the label, or several columns with 1 or 0, one for each class
        (multi-label).
      separator: separator of several labels in the label's column (multi-label); None: it has one.
      id: column of the ids; None: the number of the row is the id.
      keep: (column, value): only rows with that value are read.
      negative: column of `TextExample.negative`; None: there is none.
    """

    text_a: str | int
    text_b: str | int | None = None
    label: str | int | tuple[str, ...] | None = None
    separator: str | None = None
    id: str | int | None = None
    keep: tuple[str, str] | None = None
    negative: str | int | None = None

    def __post_init__(self):
        kinds = {type(name) for name in self.names(labelled=True)}
        if len(kinds) > 1:
            raise UserError(
                "Name all columns by the header (names) or all by numbers (no header), not"
                f" {', '.join(map(repr, self.names(labelled=True)))}."
            )

    @property
    def has_header(self) -> bool:
        return isinstance(self.text_a, str)

    def names(self, labelled: bool) -> tuple[str | int, ...]:
        """Returns the columns that every row must have."""
        label = self.label if isinstance(self.label, tuple) else (self.label,)
        names = (self.text_a, self.text_b, self.negative, self.id, *(self.keep or ())[:1])
        return tuple(n for n in (*names, *(label if labelled else ())) if n is not None)

    def are_in(self, cells: Sequence[str]) -> bool:
        """Returns whether a TSV table with this first line has the columns, apart from labels."""
        names = {name.strip() for name in cells} if self.has_header else set(range(len(cells)))
        is_table = self.has_header or len(cells) > 1
        return is_table and names.issuperset(self.names(labelled=False))


def parse_column(name: str) -> str | int | None:
    """Returns a column of the configuration: digits are a number, "" is None, no column."""
    return int(name) if name.isdecimal() else name or None


def form_of(path: str) -> str:
    """Returns `tsv`, `csv` or `json`, the form of a file; of Parquet and datasets `json`.

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


def read_table(
    source: str,
    columns: Columns,
    counts: Counter,
    labelled: bool = True,
    leave_out_broken_rows: bool = False,
) -> Iterator[TextExample]:
    """Streams the examples of a table.

    Args:
      source: a file, a folder of Parquet files, or tfds:NAME[SPLIT].
      columns: columns to read.
      counts: counts of the list above.
      labelled: whether labels are read; every row must have one then.
      leave_out_broken_rows: whether to count broken and long rows instead of raising.

    Raises:
      UserError: naming the line, for malformed rows, missing columns, labels or texts; or there
        are no rows.
    """
    if labelled and columns.label is None:
        raise UserError(f"{source}: data.label is missing: name the column of the labels.")

    def is_kept(item: tuple[str, Row]) -> bool:
        where, row = item
        if columns.keep and field(row, columns.keep[0], "its rows", where) != columns.keep[1]:
            counts["rows_left_out"] += 1
            return False
        return True

    rows = read_rows(source, counts, columns.has_header, leave_out_broken_rows)
    for number, (where, row) in numbered(filter(is_kept, rows), f"{source} has no examples."):
        # Datasets shuffle their records, which keep their numbers in `idx`.
        id = row.get("idx", number) if source.startswith("tfds:") else number
        yield _example(where, id, row, columns, counts, labelled)


def read_plain_texts(path: str, counts: Counter) -> Iterator[TextExample]:
    """Streams the lines of a file as texts without labels; blank lines are empty texts.

    Raises:
      UserError: there is no such file, no line, or a line is not UTF-8.
    """
    for number, (line, text) in numbered(read_lines(path, counts), f"{path} has no lines."):
        counts["empty_texts"] += not text.strip()
        yield TextExample(place(path, line), str(number), text)


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
    """Returns the separator of a CSV: "," or, if its first line has none, ";" or a tab."""
    first = next((line for _, line in read_lines(path, Counter()) if line.strip()), "")
    return next((mark for mark in ",;\t" if mark in _QUOTED.sub("", first)), ",")


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
        problem = "a quote that is never closed" if "end of data" in str(error) else str(error)
        raise UserError(f"{place(path, number)}: a broken row of CSV ({problem}).") from None


def _example(
    where: str, default_id: Any, row: Row, columns: Columns, counts: Counter, labelled: bool
) -> TextExample:
    text_a = text_field(row, columns.text_a, "data.text_a", where)
    text_b = None
    if columns.text_b is not None:
        text_b = text_field(row, columns.text_b, "data.text_b", where)
    negative = None
    if columns.negative is not None:
        negative = text_field(row, columns.negative, "data.negative", where)
    texts = (text_a, text_b, negative)
    counts["empty_texts"] += any(text is not None and not text.strip() for text in texts)
    id = default_id if columns.id is None else field(row, columns.id, "its id", where)
    labels = _labels(row, columns, where, counts) if labelled else None
    return TextExample(where, str(id), text_a, text_b, labels, negative)


def _labels(row: Row, columns: Columns, where: str, counts: Counter) -> tuple[str, ...]:
    assert columns.label is not None
    if isinstance(columns.label, tuple):
        return tuple(
            str(name)
            for name in columns.label
            if _truth(field(row, name, "data.label", where), name, where)
        )
    value = field(row, columns.label, "data.label", where)
    if isinstance(value, list):
        return tuple(_label(label, where, counts) for label in value)
    if columns.separator is not None and isinstance(value, str):
        parts = value.split(columns.separator) if value.strip() else []
        return tuple(_label(part, where, counts) for part in parts)
    return (_label(value, where, counts),)


def _label(value: Any, where: str, counts: Counter) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str | None):
        raise UserError(f"{where}: a JSON {type(value).__name__} instead of a label.")
    label = (value or "").strip()
    if not label:
        raise UserError(f"{where}: no label (data.label), which only rows to predict may lack.")
    counts["labels_stripped"] += label != value
    return label


def _truth(value: Any, name: str, where: str) -> bool:
    text = str(value).strip().lower()
    if text not in _TRUTH:
        raise UserError(f"{where}: {value!r} for the label {name!r}, instead of 1 or 0.")
    return _TRUTH[text]
