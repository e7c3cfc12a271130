r"""Reads texts and pairs of texts with labels from tables, and plain lines.

bert_jax.data.labelled.table_rows has the forms of tables. Repairs are counted, besides those there:

    empty_texts          rows to predict whose text is empty: kept
    rows_without_text, rows_without_label
                         rows to train or evaluate on: an error, or left out (`on_missing`)
    labels_stripped      white space around a label: dropped
    rows_left_out        rows that `Columns.keep` does not keep
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.data.labelled.cells import (
    is_missing,
    is_missing_label,
    parse_list,
    plain_number,
    truth,
)
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.reading import field, numbered, place, read_lines, text
from bert_jax.data.labelled.table_rows import Row, read_rows
from bert_jax.files.errors import UserError

# Value of `Columns.separator` for cells that are lists.
LISTS = "[]"
# Places that a message lists.
_SHOWN = 5


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by name in the header or, without header, by number from 0.

    Attributes:
      label: a column with the label, or several columns with 1 or 0, one for each class
        (multi-label).
      separator: separator of several labels in the label's column (multi-label), or LISTS; None: it
        has one.
      multi_hot: names of the classes, if a label is a list of 0 and 1.
      decimal: decimal mark of labels that are numbers; None: they are not.
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
    multi_hot: tuple[str, ...] = ()
    decimal: str | None = None

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

    def names(self, labelled: bool) -> dict[str | int, str]:
        """Returns the columns that every row must have, each with its field of the task."""
        label = self.label if isinstance(self.label, tuple) else (self.label,)
        names = dict.fromkeys(label, "task.label") if labelled else {}
        names |= {self.id: "task.id", self.negative: "task.negative"}
        names |= {self.text_b: "task.text_b", self.text_a: "task.text_a"}
        names |= {self.keep[0] if self.keep else None: "its rows"}
        return {name: role for name, role in reversed(names.items()) if name is not None}

    def are_in(self, cells: Sequence[str]) -> bool:
        """Returns whether a TSV table with this first line has the columns, apart from labels."""
        names = {name.strip() for name in cells} if self.has_header else set(range(len(cells)))
        is_table = self.has_header or len(cells) > 1
        return is_table and names.issuperset(self.names(labelled=False))


def parse_column(name: str) -> str | int | None:
    """Returns a column of the configuration: digits are a number, "" is None, no column."""
    return int(name) if name.isdecimal() else name or None


def read_table(
    source: str,
    columns: Columns,
    counts: Counter,
    labelled: bool = True,
    leave_out_broken_rows: bool = False,
    on_missing: str = "error",
    has_labels: bool = True,
) -> Iterator[TextExample]:
    """Streams the examples of a table.

    Args:
      source: a file, a folder of Parquet files, or tfds:NAME[SPLIT].
      columns: columns to read.
      counts: counts of the list above.
      labelled: whether rows are those to train or evaluate on, whose labels are read.
      leave_out_broken_rows: whether to count broken and long rows instead of raising.
      on_missing: what is done with labelled rows that lack the text or the label: an "error" after
        the last row, or "skip"; "keep": empty texts are kept, and a label must be there.
      has_labels: whether labelled rows have a label; pairs to embed may have none.

    Raises:
      UserError: naming the line, for malformed rows, missing columns, labels or texts; or there
        are no rows.
    """
    needs_label = labelled and has_labels
    if needs_label and columns.label is None:
        raise UserError(f"{source}: task.label is missing: name the column of the labels.")
    names = columns.names(needs_label)

    def is_kept(item: tuple[str, Row]) -> bool:
        where, row = item
        if columns.keep and field(row, columns.keep[0], "its rows", where) != columns.keep[1]:
            counts["rows_left_out"] += 1
            return False
        return True

    def text_of(row: Row, name: str | int, where: str) -> str:
        # A column that no row has is an error of `_MissingRows`.
        value = row.get(name) if labelled else field(row, name, names[name], where)
        return "" if is_missing(value) else text(value, f"{name!r} ({names[name]})", where)

    missing = _MissingRows(source, counts, on_missing == "skip")
    rows = read_rows(source, counts, columns.has_header, leave_out_broken_rows)
    for number, (where, row) in numbered(filter(is_kept, rows), f"{source} has no examples."):
        missing.look(where, row, names)
        # Datasets shuffle their records, which keep their numbers in `idx`.
        id = row.get("idx", number) if source.startswith("tfds:") else number
        if columns.id is not None:
            id = field(row, columns.id, "its id", where)
        text_a, text_b, negative = (
            None if name is None else text_of(row, name, where)
            for name in (columns.text_a, columns.text_b, columns.negative)
        )
        labels = _labels(row, columns, where, counts) if needs_label else None
        example = TextExample(where, str(id), text_a or "", text_b, labels, negative)
        is_empty = any(not text.strip() for text in example.texts)
        if needs_label and example.labels is None:
            missing.add(where, "label")
        elif labelled and is_empty and on_missing != "keep":
            missing.add(where, "text")
        else:
            counts["empty_texts"] += is_empty
            yield example
    missing.finish()


class _MissingRows:
    """Collects the rows of a file that lack something.

    `finish` counts `rows_without_text` and `rows_without_label`, if rows are left out (`skip`).
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
        """Raises UserError if rows lack something and are not left out, or no row has a column."""
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


def read_plain_texts(path: str, counts: Counter) -> Iterator[TextExample]:
    """Streams the lines of a file as texts without labels; blank lines are empty texts.

    Raises:
      UserError: there is no such file, no line, or a line is not UTF-8.
    """
    for number, (at, line) in numbered(read_lines(path, counts), f"{path} has no lines."):
        counts["empty_texts"] += not line.strip()
        yield TextExample(place(path, at), str(number), line)


def _labels(row: Row, columns: Columns, where: str, counts: Counter) -> tuple[str, ...] | None:
    """Returns the labels of a row; None: it has no label."""
    if isinstance(columns.label, tuple):
        cells = {name: row.get(name) for name in columns.label}
        if any(map(is_missing_label, cells.values())):
            return None
        return tuple(str(name) for name in cells if _truth(cells[name], name, where))
    value = row.get(columns.label)
    if isinstance(value, str) and value.strip() and is_missing_label(value):
        return None  # "nan"; an empty cell of several labels has none of them
    if isinstance(value, str) and columns.separator == LISTS:
        value = [] if is_missing_label(value) else parse_list(value)
    if isinstance(value, list):
        if columns.multi_hot:
            value = _named(value, columns.multi_hot, where)
        return tuple(_label(label, where, counts) for label in value)
    if columns.separator is not None and isinstance(value, str | None):
        value = "" if is_missing_label(value) else value or ""
        parts = value.split(columns.separator) if value.strip() else []
        return tuple(_label(part, where, counts) for part in parts)
    if is_missing_label(value, is_number=columns.decimal is not None):
        return None
    label = _label(value, where, counts)
    if columns.decimal is not None and isinstance(value, str):
        label = plain_number(label, columns.decimal)
    return (label,)


def _named(values: list[Any], names: tuple[str, ...], where: str) -> list[str]:
    """Returns the names of the classes at the places of a list that have a 1."""
    if len(values) != len(names):
        raise UserError(
            f"{where}: a label of {len(values)} places where the first has {len(names)}"
            f" (config.task.multi_hot={names})."
        )
    pairs = zip(names, values, strict=True)
    return [name for name, value in pairs if _truth(value, name, where)]


def _label(value: Any, where: str, counts: Counter) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"{where}: a JSON {type(value).__name__} instead of a label.")
    if not (label := value.strip()):
        raise UserError(f"{where}: one of several labels is empty (task.label).")
    counts["labels_stripped"] += label != value
    return label


def _truth(value: Any, name: Any, where: str) -> bool:
    if (known := truth(value)) is None:
        raise UserError(f"{where}: {value!r} for the label {name!r}, instead of 1 or 0.")
    return known
