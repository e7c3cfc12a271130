"""Table cells that are not plain text: numbers in any country's notation, lists, missing values."""

import math
import re
from collections.abc import Collection
from typing import Any

# A list as Python, pandas, numpy or JSON write it, and its elements: in quotes, or without any.
_LIST = re.compile(r"\s*\[(.*)\]\s*", re.DOTALL)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
# Texts that stand for an unknown number.
_NO_NUMBERS = ("na", "n/a", "null", "none", "-", "?")
# A column of labels repeats them: maximum number of distinct values per row.
_MAX_DISTINCT = 0.5
# Numbers of classes use at least this share of the numbers from the lowest to the highest.
_MIN_NUMBERED = 0.8


def is_missing(value: Any) -> bool:
    """Returns whether a value of a row is neither text nor label: None, NaN or blank."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_missing_label(value: Any, is_number: bool = False) -> bool:
    """Returns whether a value is not a label; "nan", which programs write for None, is not either.

    Args:
      value: the value.
      is_number: whether labels are numbers; then "NA", "null", "-" and the like are not labels.
    """
    if is_missing(value):
        return True
    written = value.strip().lower() if isinstance(value, str) else ""
    return written == "nan" or (is_number and written in _NO_NUMBERS)


def number_of(text: str) -> float:
    """Returns the number in a text, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def is_number(text: str) -> bool:
    """Returns whether a text is a number; NaN is not."""
    return not math.isnan(number_of(text))


def plain_number(text: str, decimal: str) -> str:
    """Returns a number as Python writes it, if a text is a number with this decimal mark.

    >>> plain_number("1.234,5", decimal=","), plain_number("1,234", decimal=".")
    ('1234.5', '1234')
    """
    group = "," if decimal == "." else "."
    number = re.escape(decimal)
    if re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}(\{group}\d{{3}})+({number}\d+)?", text):
        text = text.replace(group, "")
    return text.replace(decimal, ".") if re.fullmatch(rf"[+-]?\d*{number}\d+", text) else text


def decimal_marks(texts: Collection[str]) -> list[str]:
    """Returns the decimal marks with which all texts are numbers.

    If no text has a comma, a comma is not among them.
    """
    marks = ".," if any("," in text for text in texts) else "."
    return [m for m in marks if all(is_number(plain_number(text, m)) for text in texts)]


def repeats(distinct: Collection[str], rows: int) -> bool:
    """Returns whether a column with these values repeats them, as a column of labels does."""
    return len(distinct) <= max(2, _MAX_DISTINCT * rows)


def are_numbered(numbers: Collection[str], rows: int) -> bool:
    """Returns whether the values of `rows` rows number classes, from 0 or 1 on, and repeat."""
    if not (repeats(numbers, rows) and all(number.isdecimal() for number in numbers)):
        return False
    whole = sorted(map(int, numbers))
    return whole[0] in (0, 1) and len(whole) >= _MIN_NUMBERED * (whole[-1] - whole[0] + 1)


def is_list_text(value: Any) -> bool:
    """Returns whether a value is the text of a list."""
    return isinstance(value, str) and _LIST.fullmatch(value) is not None


def parse_list(text: str) -> list[str]:
    """Returns the elements of a list that is written as text.

    >>> parse_list("['joy', 'great fun']"), parse_list("['joy' 'fun']"), parse_list("[0 1]")
    (['joy', 'great fun'], ['joy', 'fun'], ['0', '1'])
    """
    match = _LIST.fullmatch(text)
    inner = match[1].strip() if match else text
    if quoted := _QUOTED.findall(inner):
        return [re.sub(r"\\(.)", r"\1", element[1:-1]) for element in quoted]
    parts = inner.split(",") if "," in inner else inner.split()
    return [part.strip() for part in parts if part.strip()]


def truth(value: Any) -> bool | None:
    """Returns the truth value of 1, 0, true, false or their texts; None for anything else."""
    return _TRUTH.get(str(value).strip().lower())
