r"""Reads files of examples as lines, or as objects with named fields, each with its place.

Objects are those of JSON files, the rows of Parquet files and of folders that Hugging Face
`datasets` wrote (bert_jax.text.arrow_tables), or the records of tfds:NAME[SPLIT]
(bert_jax.text.tfds).

Files are plain or compressed, and in UTF-8. Repairs are counted:

    utf8_boms            byte order mark: dropped
    crlf_lines           '\r' at the end of a line: dropped
    nul_lines            NUL characters: removed

Other malformed input (other encodings, invalid JSON) raises UserError with its line, since leaving
out an example would change every score.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text import arrow_tables, tfds
from bert_jax.text.files import encoding_of, read_blocks, refuse_spreadsheet, with_newlines

T = TypeVar("T")

_DATASET = "tfds:"
_NO_OBJECT = 'instead of objects with named fields, such as {"text_a": "...", "label": "..."}.'
_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_lines(path: str, counts: Counter) -> Iterator[tuple[int, str]]:
    r"""Yields (number of the line from 1, the line without its end), split at '\n' only.

    In a file without '\n', '\r' ends lines (`text.files.with_newlines`).

    Raises:
      UserError: there is no such file, it is binary, or a line is not UTF-8.
    """
    if not os.path.isfile(path):
        raise UserError(f"{path}: there is no such file.")
    blocks = read_blocks(path)
    head = _checked(next(blocks, b""), path, counts)
    for number, line in enumerate(_split(with_newlines(chain([head], blocks))), 1):
        yield number, _decode(line, place(path, number), counts)


def place(path: str, line: int) -> str:
    """Returns the name of a line of a file, for messages."""
    return f"{path}, line {line}"


def _checked(head: bytes, path: str, counts: Counter) -> bytes:
    """Returns the first block of a file of UTF-8 without its byte order mark."""
    match encoding_of(head):
        case "utf-8-sig":
            counts["utf8_boms"] += 1
            return head[3:]
        case "binary":
            refuse_spreadsheet(path)
            raise UserError(f"{path} is a binary file, judging by its control bytes.")
        case "utf-16" | "utf-32" as encoding:
            name = encoding.upper()
            raise UserError(f"{path} is in {name}: iconv -f {name} -t UTF-8 converts it.")
    return head


def _split(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _decode(line: bytes, where: str, counts: Counter) -> str:
    if line.endswith(b"\r"):
        counts["crlf_lines"] += 1
        line = line[:-1]
    if b"\0" in line:
        counts["nul_lines"] += 1
        line = line.replace(b"\0", b"")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: invalid UTF-8 ({error.reason} at byte {error.start}); iconv converts other"
            " encodings, such as GB18030 or ISO-8859-1."
        ) from None


def read_json(path: str, counts: Counter) -> Any:
    """Reads a file of one JSON value; UserError as `read_lines`, or if it is not JSON."""
    return _parse("\n".join(line for _, line in read_lines(path, counts)), path)


def read_objects(source: str, counts: Counter) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, object) of a file of JSON objects, one per line (streamed) or one array.

    The records of tfds:NAME[SPLIT], and rows of Parquet, are such objects too. Class labels are
    names, None where a test set hides them; other floats of records are text, with the digits of
    their precision.

    Raises:
      UserError: as `read_lines`, or a value is not an object, or there is no such dataset.
    """
    if source.startswith(_DATASET):
        yield from _read_dataset(source, counts)
    elif arrow_tables.is_table(source):
        yield from arrow_tables.read_rows(source)
    elif (first := _first_line(source)).startswith("["):
        if re.match(r"\[\s*[^{\s]", first):  # not an array of objects, perhaps a list per line
            raise UserError(f"{source}: JSON lists {_NO_OBJECT}")
        for number, value in enumerate(read_json(source, counts), 1):
            yield _object(value, f"{source}, element {number}")
    else:
        for number, line in read_lines(source, counts):
            if line.strip():
                where = place(source, number)
                yield _object(_parse(line, where), where)


def has_objects(source: str) -> bool:
    """Returns whether a source is a dataset, or JSON by its name or an object in its first line."""
    if source.startswith(_DATASET) or arrow_tables.is_table(source):
        return True
    if ending_of(source) in (".json", ".jsonl", ".ndjson"):
        return True
    try:
        return isinstance(_parse(_first_line(source), source), dict)
    except UserError:
        return False


def is_array(path: str) -> bool:
    """Returns whether a file begins as an array of JSON objects does."""
    first = _first_line(path)
    return re.match(r"\[\s*\{", first) is not None or (first == "[" and has_objects(path))


def is_object(path: str) -> bool:
    """Returns whether a file begins as one JSON object does."""
    return _first_line(path).startswith("{")


def _read_dataset(source: str, counts: Counter) -> Iterator[tuple[str, dict[str, Any]]]:
    name, split = tfds.parse_name(source.removeprefix(_DATASET))
    features = tfds.open_builder(name).info.features
    for number, record in tfds.read_records(name, split):
        where = f"tfds:{name}[{split}], record {number}"
        yield where, {key: _plain(record[key], features[key], where, counts) for key in record}


def _plain(value: Any, feature: Any, where: str, counts: Counter) -> Any:
    """Returns a value of a record as JSON would have it."""
    if isinstance(value, dict):
        return {key: _plain(value[key], feature[key], where, counts) for key in value}
    if hasattr(feature, "feature"):
        return [_plain(item, feature.feature, where, counts) for item in value]
    if isinstance(value, bytes):
        counts["nul_lines"] += b"\0" in value
        try:
            return value.replace(b"\0", b"").decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: invalid UTF-8 ({error.reason}).") from None
    if hasattr(feature, "int2str"):
        # tensorflow-datasets writes -1 where a test set hides its labels.
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, float):
        # 3.8, not 3.799999952316284.
        return str(np.dtype(feature.np_dtype).type(value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def numbered(items: Iterable[T], problem: str) -> Iterator[tuple[int, T]]:
    """Yields (number, item), from 0; UserError with the text `problem`, if there are no items."""
    number = -1
    for number, item in enumerate(items):
        yield number, item
    if number < 0:
        raise UserError(problem)


def ending_of(path: str) -> str:
    """Returns the ending of a file's name, without that of its compression."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in _COMPRESSIONS else ending


def _first_line(path: str) -> str:
    return next((line.strip() for _, line in read_lines(path, Counter()) if line.strip()), "")


def _object(value: Any, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: a JSON {type(value).__name__} {_NO_OBJECT}")
    return where, value


def _parse(source: str, where: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, or deep lists
        raise UserError(f"{where}: invalid JSON ({error}).") from None


def field(row: dict[Any, Any], name: str | int, role: str, where: str) -> Any:
    """Returns the value of a column of a row or a field of an object.

    Args:
      role: role of the column, for the message.

    Raises:
      UserError: there is no such column; the message lists all columns.
    """
    if name not in row:
        columns = ", ".join(map(_short, row))
        raise UserError(f"{where}: no column {name!r} ({role}); it has {columns or 'none'}.")
    return row[name]


def text_field(row: dict[Any, Any], name: str | int, role: str, where: str) -> str:
    """Returns the value of a column or a field that must be text, as `field` and `text`."""
    return text(field(row, name, role, where), f"{name!r} ({role})", where)


def text(value: Any, what: str, where: str) -> str:
    """Returns a value that is text without lone surrogates; UserError that names it as `what`."""
    if not isinstance(value, str):
        raise UserError(
            f"{where}: {what} is a JSON {type(value).__name__}, {_short(value)}, instead of text."
        )
    if _SURROGATE.search(value):
        raise UserError(f"{where}: {what} has a lone surrogate, which is not a character.")
    return value


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:36]}..."
