"""Formats of other programs that would be misread, and why each is refused."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from bert_jax.data.labelled.cells import is_missing
from bert_jax.data.labelled.forms.table import Table
from bert_jax.data.labelled.reading import ending_of, read_lines
from bert_jax.files.errors import UserError

_EXCEL = re.compile(r'"?sep=.?"?', re.IGNORECASE)
_NUMBERED_NEGATIVE = re.compile(r"(hard_)?negatives?_\d+")
_BYTES = re.compile(r"b(['\"]).*\1", re.DOTALL)
# Labels of natural language inference; "-" stands where the annotators did not agree.
_INFERENCE = {"entailment", "neutral", "contradiction"}
# What Prodigy writes into the field "answer".
_ANSWERS = {"accept", "reject", "ignore"}


def refuse(path: str, reasons: Iterator[str]) -> None:
    """Raises UserError with the first of the reasons against a file, if there is one."""
    for reason in reasons:
        raise UserError(f"{path}{reason}")


def of_lines(path: str) -> Iterator[str]:
    """Yields reasons found in the name or the first lines of a file."""
    if ending_of(path) == ".ann":
        yield (
            " has brat's form, whose texts are in another file: write one word and its tag per"
            " line, or JSON lines with a text and its entities."
        )
    first = [line for _, line in islice(read_lines(path, Counter()), 5)] or [""]
    top = first[0].strip()
    if _EXCEL.fullmatch(top):
        yield f": the first line, {top!r}, is for Excel alone: remove it."
    if any(line.startswith("#begin document") for line in first):
        yield (
            " has the form of CoNLL-2012, whose entities are marked by brackets: write a word and"
            " its tag a line."
        )
    names = [cell.strip('" ') for cell in re.split(r"[,;\t]", first[0])]
    numbers = names if names[0] else names[1:]
    if len(numbers) > 1 and numbers == [str(number) for number in range(len(numbers))]:
        yield (
            f": the header has numbers, {top!r}, as pandas writes for columns without names: name"
            " them, such as text and label."
        )


def of_object(value: Mapping[str, Any]) -> Iterator[str]:
    """Yields reasons found in the first object of JSON, which is not an example."""
    if value.keys() == {"header"}:
        yield ": the first line is a header, as MRQA's files have: remove it."
    data = value.get("data")
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        if not {"paragraphs", "qas"} & data[0].keys():
            yield (
                " has its examples in the field 'data': write the list alone, or one object"
                " per line."
            )
    sizes = {len(item) for item in value.values() if isinstance(item, list)}
    is_columns = all(isinstance(item, list) for item in value.values()) and len(value) > 1
    if is_columns and len(sizes) == 1 and min(sizes) > 1 and not {"tokens", "words"} & set(value):
        yield (
            " has one object of columns: write one of each row, as pandas does with"
            " to_json(FILE, orient='records', lines=True)."
        )


def of_table(table: Table) -> Iterator[str]:
    """Yields reasons found in the cells of a table: marks that change what rows mean."""
    columns = table.columns
    if str(next(iter(columns.values()))[0]).startswith("__label__"):
        yield " has fastText's form: write a table with a text and its labels."
    answers = Counter(map(str, columns.get("answer", ())))
    if answers.keys() <= _ANSWERS and (left := answers.total() - answers["accept"]):
        yield (
            f": {left:,} of {answers.total():,} rows were not accepted in Prodigy ('answer' is"
            " reject or ignore): leave them out."
        )
    for name, values in columns.items():
        filled = [value for value in values if not is_missing(value)]
        if filled and all(isinstance(v, str) and _BYTES.fullmatch(v) for v in filled):
            yield (
                f": the texts of {str(name)!r} are Python's bytes, such as {filled[0]:.30}: decode"
                " them before they are written."
            )
        others = set(map(str, filled)) - {"-"} if "-" in filled else set()
        if others and others <= _INFERENCE:
            yield (
                f": {filled.count('-'):,} rows have the label '-' in {str(name)!r}, where SNLI's"
                " annotators did not agree: leave them out."
            )
    are_pairs = not {"query", "anchor"}.isdisjoint(columns)
    for name in ("pos", "positive", "positives") if are_pairs else ():
        values = [value for value in columns.get(name, ()) if value is not None]
        if values and all(isinstance(value, list) for value in values):
            yield (
                f": {name!r} has lists of texts: write one row for each pair, with the columns"
                " anchor, positive and, if there is one, negative."
            )
    numbered = [name for name in map(str, columns) if _NUMBERED_NEGATIVE.fullmatch(name.lower())]
    if are_pairs and numbered:
        yield (
            f" has {', '.join(numbered)}: write one row for each negative, with the columns anchor,"
            " positive and negative."
        )
