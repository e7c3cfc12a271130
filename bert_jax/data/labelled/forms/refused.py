"""Forms of other programs that would be misread, and why each is refused."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from bert_jax.data.labelled.missing import is_missing
from bert_jax.data.labelled.reading import ending_of, read_lines
from bert_jax.files.errors import UserError

_EXCEL = re.compile(r'"?sep=.?"?', re.IGNORECASE)
_BYTES = re.compile(r"b(['\"]).*\1", re.DOTALL)
# Labels of natural language inference; "-" stands where the annotators did not agree.
_INFERENCE = {"entailment", "neutral", "contradiction"}
# What Prodigy writes into the field "answer".
_ANSWERS = {"accept", "reject", "ignore"}


def refuse_lines(path: str) -> None:
    """Refuses forms that are known by the name or the first lines of a file.

    Raises:
      UserError: with what to write instead.
    """
    if ending_of(path) == ".ann":
        raise UserError(
            f"{path} has brat's form, whose texts are in another file: write a word and its tag a"
            " line, or JSON lines with a text and its entities."
        )
    first = [line for _, line in islice(read_lines(path, Counter()), 5)]
    if first and _EXCEL.fullmatch(first[0].strip()):
        raise UserError(
            f"{path}: the first line, {first[0].strip()!r}, is for Excel alone: remove it."
        )
    if any(line.startswith("#begin document") for line in first):
        raise UserError(
            f"{path} has the form of CoNLL-2012, whose entities are marked by brackets: write a"
            " word and its tag a line."
        )
    cells = re.split(r"[,;\t]", first[0]) if first else []
    names = [cell.strip('" ') for cell in cells]
    numbers = names[1:] if names and not names[0] else names
    if len(numbers) > 1 and numbers == [str(number) for number in range(len(numbers))]:
        raise UserError(
            f"{path}: the header has numbers, {first[0].strip()!r}, as pandas writes for columns"
            " without names: name them, such as text and label."
        )


def refuse_object(path: str, value: Any) -> None:
    """Refuses JSON whose first object is no example.

    Raises:
      UserError: with what to write instead.
    """
    if not isinstance(value, Mapping):
        return
    if value.keys() == {"header"}:
        raise UserError(f"{path}: the first line is a header, as MRQA's files have: remove it.")
    data = value.get("data")
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        if not {"paragraphs", "qas"} & data[0].keys():
            raise UserError(
                f"{path} has its examples in the field 'data': write the list alone, or an object"
                " a line."
            )
    sizes = {len(item) for item in value.values() if isinstance(item, list)}
    is_columns = all(isinstance(item, list) for item in value.values()) and len(value) > 1
    if is_columns and len(sizes) == 1 and min(sizes) > 1 and not {"tokens", "words"} & set(value):
        raise UserError(
            f"{path} has one object of columns: write one of each row, as pandas does with"
            " to_json(FILE, orient='records', lines=True)."
        )


def refuse_columns(path: str, columns: Mapping[Any, Sequence[Any]]) -> None:
    """Refuses tables with marks that change what their rows mean.

    Raises:
      UserError: with what to write instead.
    """
    if str(next(iter(columns.values()))[0]).startswith("__label__"):
        raise UserError(f"{path} has fastText's form: write a table with a text and its labels.")
    answers = Counter(map(str, columns.get("answer", ())))
    if answers.keys() <= _ANSWERS and (left := answers.total() - answers["accept"]):
        raise UserError(
            f"{path}: {left:,} of {answers.total():,} rows were not accepted in Prodigy ('answer'"
            " is reject or ignore): leave them out."
        )
    for name, values in columns.items():
        filled = [value for value in values if not is_missing(value)]
        if filled and all(isinstance(v, str) and _BYTES.fullmatch(v) for v in filled):
            raise UserError(
                f"{path}: the texts of {str(name)!r} are Python's bytes, such as {filled[0]:.30}:"
                " decode them before they are written."
            )
        others = set(map(str, filled)) - {"-"} if "-" in filled else set()
        if others and others <= _INFERENCE:
            raise UserError(
                f"{path}: {filled.count('-'):,} rows have the label '-' in {str(name)!r}, where"
                " SNLI's annotators did not agree: leave them out."
            )
    are_pairs = not {"query", "anchor"}.isdisjoint(columns)
    for name in ("pos", "positive", "positives") if are_pairs else ():
        values = [value for value in columns.get(name, ()) if value is not None]
        if values and all(isinstance(value, list) for value in values):
            raise UserError(
                f"{path}: {name!r} has lists of texts: write a row for each pair, with the columns"
                " anchor, positive and, if there is one, negative."
            )
