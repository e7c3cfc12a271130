r"""Files of examples as lines and as JSON objects, each with its place in the file.

Files are plain or compressed, and in UTF-8. What is mended is counted:

    utf8_boms            byte order mark: dropped
    crlf_lines           '\r' at the end of a line: dropped
    nul_lines            NUL characters: removed

What cannot be mended without guessing (other encodings, broken JSON) is a ValueError with its line:
an example that a reader left out would change every score.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from bert_jax.text.files import encoding_of, open_decompressed, read_blocks

_COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_lines(path: str, counts: Counter) -> Iterator[tuple[int, str]]:
    r"""Yields (number of the line from 1 on, the line without its end), cut at '\n' only.

    Raises:
      ValueError: there is no such file, it is no text, or a line is not UTF-8.
    """
    if not os.path.isfile(path):
        raise ValueError(f"{path}: there is no such file.")
    with open_decompressed(path) as file:
        blocks = read_blocks(file, path)
        head = next(blocks, b"")
        head = _checked(head, path, counts)
        for number, line in enumerate(_split(chain([head], blocks)), 1):
            yield number, _decode(line, place(path, number), counts)


def place(path: str, line: int) -> str:
    """Names a line of a file."""
    return f"{path}, line {line}"


def _checked(head: bytes, path: str, counts: Counter) -> bytes:
    """The first block of a file of UTF-8 without its mark."""
    match encoding_of(head):
        case "utf-8-sig":
            counts["utf8_boms"] += 1
            return head[3:]
        case "binary":
            raise ValueError(f"{path} is no text but a binary file, by its control bytes.")
        case "utf-16" | "utf-32" as encoding:
            name = encoding.upper()
            raise ValueError(f"{path} is in {name}: iconv -f {name} -t UTF-8 converts it.")
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
        raise ValueError(
            f"{where}: no UTF-8 ({error.reason} at byte {error.start}); iconv converts other"
            " encodings, such as GB18030 or ISO-8859-1."
        ) from None


def read_json(path: str, counts: Counter) -> Any:
    """Reads a file that is one value of JSON.

    Raises:
      ValueError: as `read_lines`, or it is no JSON.
    """
    return _parse("\n".join(line for _, line in read_lines(path, counts)), path)


def read_objects(path: str, counts: Counter) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, object) of a file of JSON objects: one a line, streamed, or one array of them.

    Raises:
      ValueError: as `read_lines`, or what stands there is no JSON object.
    """
    if _first_line(path).startswith("["):
        for number, value in enumerate(read_json(path, counts), 1):
            yield _object(value, f"{path}, element {number}")
        return
    for number, line in read_lines(path, counts):
        if line.strip():
            where = place(path, number)
            yield _object(_parse(line, where), where)


def is_json(path: str) -> bool:
    """Tells by its name, or by a JSON object in its first line, whether a file is JSON."""
    if ending_of(path) in (".json", ".jsonl", ".ndjson"):
        return True
    try:
        return isinstance(_parse(_first_line(path), path), dict)
    except ValueError:
        return False


def ending_of(path: str) -> str:
    """The ending of a file's name, without that of its compression."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in _COMPRESSIONS else ending


def _first_line(path: str) -> str:
    """The first line of a file that is not blank; "" where there is none."""
    return next((line.strip() for _, line in read_lines(path, Counter()) if line.strip()), "")


def _object(value: Any, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: a JSON {type(value).__name__} where an object belongs.")
    return where, value


def _parse(source: str, where: str) -> Any:
    try:
        return json.loads(source)
    # ValueError also for numbers of thousands of digits, RecursionError for deep nesting.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON ({error}).") from None


def field(row: dict[Any, Any], name: str | int, role: str, where: str) -> Any:
    """Returns the value of a column of a row or a field of an object.

    Args:
      role: what the user calls it, for the message.

    Raises:
      ValueError: there is none; the message names those that there are.
    """
    if name not in row:
        there = ", ".join(map(_short, row))
        raise ValueError(f"{where}: no column {name!r} ({role}) but {there or 'none at all'}.")
    return row[name]


def text_field(row: dict[Any, Any], name: str | int, role: str, where: str) -> str:
    """The same where it must be text.

    Raises:
      ValueError: there is none, or it is something else.
    """
    return text(field(row, name, role, where), f"{name!r} ({role})", where)


def text(value: Any, what: str, where: str) -> str:
    """The value itself.

    Raises:
      ValueError: it is no text, or none that can be written down.
    """
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: {what} is a JSON {type(value).__name__}, {_short(value)}, where text"
            " belongs."
        )
    if _SURROGATE.search(value):
        raise ValueError(f"{where}: {what} has half of a surrogate pair, which is no character.")
    return value


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:36]}..."
