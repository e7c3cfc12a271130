"""Data in memory as files: DataFrames, Hugging Face datasets, lists, and texts with labels.

They are written as JSON lines, which are read like any file: detection, splitting, checks and
predictions are the same as for a file with the same rows.
"""

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=Any)
Row = Mapping[str, Any]
# The index of a DataFrame, which pyarrow adds as a column unless it numbers the rows.
_INDEX = "__index_level_"


def is_table(data: Any) -> bool:
    """Returns whether data are a table from pandas, polars, pyarrow or Hugging Face `datasets`."""
    return column_names(data) is not None


def column_names(data: Any) -> list[Any] | None:
    """Returns the names of a table's columns; None if data are not a table."""
    names = getattr(data, "column_names", None)
    names = getattr(data, "columns", None) if names is None else names
    return None if names is None or callable(names) else list(names)


def to_file(data: Any, folder: str, name: str) -> str:
    """Writes data in memory to FOLDER/NAME.jsonl, and returns the path of the file.

    Args:
      data: a path, which is returned as it is; or one of

        - a table (`is_table`), or a dict of columns;
        - rows: dicts, one for each example;
        - (texts, labels): two sequences of one length. A text may be a pair (text_a, text_b), or a
          list of words, whose label is a list of tags;
        - texts.
      folder: folder of the file.
      name: the argument's name, for messages.

    Raises:
      UserError: the data have another form.
    """
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.jsonl")
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        for row in _rows(data, name):
            line = {str(key): _plain(value) for key, value in row.items()}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path


def read_examples(data: Any, name: str, read: Callable[[str], Iterable[T]]) -> list[T]:
    """Returns the examples of data in memory.

    Args:
      data: see `to_file`.
      name: the argument's name, for messages and places.
      read: path of a file -> its examples, dataclasses with a field `where`.

    Raises:
      UserError: the data have another form, a row has no text, or `read` raises it.
    """
    with tempfile.TemporaryDirectory() as folder, naming_arguments(folder):
        path = to_file(data, folder, name)
        examples = [
            dataclasses.replace(example, where=_named(example.where, folder))
            for example in read(path)
        ]
    # NaN and the like became empty texts, for which a model would give an answer, too.
    if empty := [number for number, example in enumerate(examples) if example.has_empty]:
        more = f" and {len(empty) - 1:,} more" if len(empty) > 1 else ""
        raise UserError(
            f"{name} has no text in row {empty[0]}, counted from 0{more}: fill it in, or leave such"
            " rows out."
        )
    return examples


@contextlib.contextmanager
def naming_arguments(folder: str) -> Iterator[None]:
    """In error messages, names the arguments instead of the files that `to_file` wrote for them."""
    try:
        yield
    except UserError as error:
        error.args = (_named(str(error), folder),)
        raise


def _named(message: str, folder: str) -> str:
    """Returns a message with `evaluate[0]` in place of `FOLDER/evaluate.jsonl, line 1`."""

    def argument(found: re.Match[str]) -> str:
        return found[1] + (f"[{int(found[2]) - 1}]" if found[2] else "")

    return re.sub(rf"{re.escape(folder)}[/\\](\w+)\.jsonl(?:, line (\d+))?", argument, message)


def _rows(data: Any, name: str) -> Iterable[Row]:
    if hasattr(data, "collect_schema") and not hasattr(data, "to_dicts"):  # a polars LazyFrame
        raise UserError(f"{name} is a {type(data).__name__}: give {name}.collect().")
    if isinstance(data, Mapping):
        if any(map(is_table, data.values())):
            raise UserError(f"{name} has the splits {', '.join(map(repr, data))}: give one.")
        return _rows_of_columns(data, name)
    if is_table(data):
        return _rows_of_table(data, name)
    if _are_texts_with_labels(data):
        texts, labels = data
        return _labelled_rows(texts, labels, name)
    if not isinstance(data, Iterable):
        raise UserError(
            f"{name} is of type {type(data).__name__}: give a path, a table (pandas, polars,"
            " pyarrow, datasets), rows as dicts, or (texts, labels)."
        )
    return (_row(value, f"{name}[{number}]") for number, value in enumerate(data))


def _row(value: Any, where: str) -> Row:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, Mapping):
        raise UserError(
            f"{where} is {value!r:.60}: give each row as a dict of its columns, such as"
            ' {"text": ..., "label": ...} or {"anchor": ..., "positive": ...}, or all texts and all'
            " labels as (texts, labels)."
        )
    return value


def _rows_of_columns(columns: Mapping[str, Any], name: str) -> Iterator[Row]:
    lists = {key: _whole_numbers(list(values)) for key, values in columns.items()}
    lengths = list(map(len, lists.values()))
    if len(set(lengths)) > 1:
        raise UserError(f"The columns of {name} have {', '.join(map(str, lengths))} rows.")
    return (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))


def _rows_of_table(table: Any, name: str) -> Iterator[Row]:
    import pyarrow as pa  # takes time, and is rarely needed

    names = column_names(table) or []
    if unnamed := [key for key in names if not isinstance(key, str) or key.isdecimal()]:
        raise UserError(
            f"{name} has columns without names ({', '.join(map(str, unnamed))}): name them, such"
            f' as {name}.columns = ["text", "label"].'
        )
    try:
        arrow = _to_arrow(table)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        line = " ".join(str(error).split())[:200]
        raise UserError(f"{name} has a column of values of several types: {line}") from None
    arrow = arrow.select([key for key in arrow.column_names if not key.startswith(_INDEX)])
    for place, field in enumerate(arrow.schema):
        if pa.types.is_floating(field.type) and arrow[place].null_count:
            with contextlib.suppress(pa.ArrowInvalid):  # there are fractions
                arrow = arrow.set_column(place, field.name, arrow[place].cast(pa.int64()))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.arrow")
        with pa.ipc.new_stream(path, arrow.schema) as stream:
            stream.write_table(arrow)
        return iter([row for _, row in Table(path).rows()])


def _to_arrow(table: Any) -> "pa.Table":
    import pyarrow as pa

    if hasattr(table, "with_format"):  # of `datasets`, whose features name the classes
        if hasattr(table, "__len__"):
            return table.with_format("arrow")[:]
        schema = table.features.arrow_schema if table.features else None
        return pa.Table.from_pylist(list(table), schema=schema)
    return pa.table(table)


def _are_texts_with_labels(data: Any) -> bool:
    """Whether data are (texts, labels), and not two texts or rows."""
    if not isinstance(data, tuple) or len(data) != 2:
        return False
    return not any(isinstance(part, str | Mapping) for part in data)


def _labelled_rows(texts: Iterable[Any], labels: Iterable[Any], name: str) -> Iterator[Row]:
    if (columns := column_names(texts)) is not None:
        raise UserError(
            f"The texts of {name} are a table with the columns {', '.join(map(repr, columns))}:"
            " give one column, or the whole table, with the labels in it."
        )
    texts, labels = list(texts), _whole_numbers(list(labels))
    if len(texts) != len(labels):
        raise UserError(f"{name} has {len(texts):,} texts and {len(labels):,} labels.")
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        is_list = isinstance(text, Sequence | np.ndarray) and not isinstance(text, str)
        if isinstance(text, str):
            yield {"text": text, "label": label}
        elif not is_list or not all(isinstance(part, str) for part in text):
            raise UserError(
                f"Text {number} of {name} is {text!r:.60}: give texts, pairs (text_a, text_b), or"
                " lists of words."
            )
        elif isinstance(text, list):
            yield {"tokens": text, "tags": label}
        elif len(text) == 2:
            yield {"text_a": text[0], "text_b": text[1], "label": label}
        else:
            raise UserError(f"Text {number} of {name} has {len(text)} texts: give one or two.")


def _whole_numbers(values: list[Any]) -> list[Any]:
    """Returns floats that were integers, some of them missing, as integers again.

    pandas stores integers as floats if one is missing, and a class 1 would be called 1.0.
    """
    present = [value for value in values if not is_missing(value)]
    if len(present) == len(values) or not all(isinstance(x, float | np.floating) for x in present):
        return values
    if not all(float(value).is_integer() for value in present):
        return values
    return [None if is_missing(value) else int(value) for value in values]


def is_missing(value: Any) -> bool:
    """Returns whether a value stands for a missing one: None, NaN, NA or NaT."""
    return _plain(value) is None


def _plain(value: Any) -> Any:
    """Returns a value as JSON would have it; None if it is missing."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value if isinstance(value, str | bool | int | float) else str(value)
