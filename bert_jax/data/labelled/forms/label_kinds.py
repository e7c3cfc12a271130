"""What the values in the column of the labels are: classes, numbers, or several labels per row.

They are several (`multi_label`) if cells are lists, or have parts that recur in other cells;
numbers (`regression`) if some have a fraction, or if there are more than _MAX_GRADES of them that
do not number classes from 0 or 1; else classes.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.labelled.cells import (
    are_numbered,
    decimal_marks,
    is_list_text,
    is_missing_label,
    is_number,
    number_of,
    parse_list,
    plain_number,
    repeats,
    truth,
)
from bert_jax.data.labelled.forms.columns import is_amount_name
from bert_jax.data.labelled.forms.table import Detection, Table, listed
from bert_jax.data.labelled.tables import LISTS, parse_column
from bert_jax.files.errors import UserError

# Task -> value of `task.problem_type`.
PROBLEM_TYPES = {"classification": "single", "regression": "regression", "multi_label": "multi"}
_MULTI_LABEL_METRICS = {"metrics": ("macro_f1", "f1")}
_SEPARATORS = (",", ";", "|")
# Minimum share of cells that have a separator.
_MIN_SEPARATED = 0.05
# Share of the cells with a comma above which it is a decimal comma, where both are possible.
_MIN_DECIMALS = 0.5
# Distinct whole numbers that are still classes, such as the stars of a review.
_MAX_GRADES = 10
# Share of a class above which accuracy is a poor score: the majority-class baseline reaches it.
SKEWED = 0.8
# Mean or standard deviation of numbers that training with usual learning rates does not reach.
_LARGE = 20.0
# How many classes, and pairs of likely mistakes, a message shows.
_SHOWN, _FAULTS_SHOWN = 6, 8
# Examples of a class below which its score says nothing.
_FEWEST = 5
# A number with a unit before or after it.
_UNIT = re.compile(r"[$€£¥]\s?[\d.,]+|[\d.,]+\s?[%$€£¥]")


def find_kind(table: Table, label: str, task: str) -> Detection:
    """Returns the kind of the labels in one column, or in several as "a,b,c".

    Args:
      table: the table; the user's `task.label_separator` and `task.decimal` are kept.
      label: the column; its cells without a label are left out.
      task: a key of PROBLEM_TYPES; "": any.

    Raises:
      UserError: the values cannot be labels of the task.
    """
    given, columns = table.given, table.columns
    values = columns.get(parse_column(label), columns.get(label))
    if values is None:
        names = [name.strip() for name in label.split(",")]
        if missing := [name for name in names if name not in columns]:
            raise UserError(
                f"{table.path} has no column {missing[0]!r} (task.label), only {listed(columns)}."
            )
        what = f"{len(names)} columns of 0 and 1"
        return Detection("multi_label", what, _MULTI_LABEL_METRICS)

    where, another = f"{table.path}: the column {label!r}", "name another column with task.label."
    values = [value for value in values if not is_missing_label(value)]
    if not values:
        raise UserError(f"{where} is empty: {another}")
    separator = str(given.get("task.label_separator", ""))
    fields: dict[str, Any] = {}
    lists = _lists(values, separator)
    if lists:
        if any(is_list_text(value) for value in values):
            fields["task.label_separator"] = separator = LISTS
        if names := _places(lists):
            fields["task.multi_hot"] = names
            lists = [[n for n, x in zip(names, row, strict=True) if truth(x)] for row in lists]
        if task != "multi_label" and all(len(row) == 1 for row in lists):
            values = [row[0] for row in lists]  # as annotation tools write a single label
        elif task in ("", "multi_label"):
            return _several(lists, separator, fields, where)
        else:
            raise UserError(f"{where} has lists of labels, which are for --task=multi_label.")
    texts = [str(value).strip() for value in values]
    marks = [str(given["task.decimal"])] if "task.decimal" in given else _decimal_marks(texts)
    if task == "multi_label" or (not task and not lists and not marks):
        separator = separator or ("" if lists else _separator(texts))
        if separator or task == "multi_label":
            rows = [_parts(text, separator) for text in texts]
            return _several(rows, separator, fields, where)
    numbers = [text for text in texts if not is_missing_label(text, is_number=True)]
    marks = marks or _decimal_marks(numbers)
    plain = Counter(plain_number(text, marks[0]) if marks else text for text in numbers)
    if task == "regression" or (not task and _are_amounts(plain, len(numbers), label)):
        if len(marks) > 1:
            shown = next(text for text in numbers if "," in text)
            raise UserError(
                f"{where} has {shown!r}, and the comma may begin decimals or group thousands: say"
                " which mark begins decimals, --config.task.decimal=, or --config.task.decimal=."
            )
        return _amounts(plain, marks, fields, where)
    counts = Counter(texts)
    if sum(map(bool, map(_UNIT.fullmatch, texts))) > len(texts) / 2:
        raise UserError(
            f"{where} has numbers with a sign, such as {texts[0]!r}: write the numbers alone."
        )
    if not repeats(counts, len(values)):
        raise UserError(
            f"{where} has {len(counts):,} different values in {len(values):,} rows, so these are"
            f" not class labels: {another}"
        )
    if len(counts) == 1:
        raise UserError(
            f"{where}: all {len(texts):,} labels are {texts[0]!r}, and a classifier needs two"
            f" classes: {another}"
        )
    return _classes(counts, fields)


def find_number_faults(numbers: Sequence[float]) -> Iterator[str]:
    """Yields what makes numbers hard to learn: predictions begin at about 0, with small steps."""
    mean, deviation = float(np.mean(numbers)), float(np.std(numbers))
    if max(abs(mean), deviation) > _LARGE:
        yield (
            f"the numbers have a mean of {mean:.4g} and a deviation of {deviation:.3g}, and"
            " predictions begin at 0: scale them to a mean of 0 and a deviation of 1"
        )


def find_faults(labels: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a description of each fault in the labels of examples.

    Args:
      labels: the names of each example's classes or entity types.
    """
    counts = Counter(name for names in labels for name in names)
    spellings = defaultdict(list)
    for name in sorted(counts):
        number = number_of(name)
        spelling = "".join(name.split()).casefold() if math.isnan(number) else str(number)
        spellings[spelling].append(name)
    if alike := [names for names in spellings.values() if len(names) > 1]:
        shown = "; ".join(
            ", ".join(f"{name!r} ({counts[name]:,})" for name in names)
            for names in alike[:_FAULTS_SHOWN]
        )
        yield (
            f"labels that differ by case, spaces or decimals only are classes of their own: {shown}"
        )
    if rare := sorted((count, name) for name, count in counts.items() if count < _FEWEST):
        shown = ", ".join(f"{name!r} ({count})" for count, name in rare[:_FAULTS_SHOWN])
        more = ", ..." if len(rare) > _FAULTS_SHOWN else ""
        yield f"{len(rare)} classes have fewer than {_FEWEST} examples: {shown}{more}"


# ------------------------------------------------------------------ several labels


def _lists(values: Sequence[Any], separator: str) -> list[list[Any]]:
    """Returns the cells as lists, also of lists written as text; [] if they are not lists."""
    is_list = [isinstance(value, list) or is_list_text(value) for value in values]
    is_mixed = separator == LISTS or any(isinstance(value, list) for value in values)
    if not any(is_list) or not (all(is_list) or is_mixed):
        return []
    return [value if isinstance(value, list) else parse_list(str(value)) for value in values]


def _places(lists: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Returns the numbers of the places of lists of 0 and 1; () if they are something else."""
    sizes = set(map(len, lists))
    if len(sizes) > 1 or max(sizes) < 2 or any(truth(x) is None for row in lists for x in row):
        return ()
    return tuple(map(str, range(max(sizes))))


def _several(
    rows: Sequence[Sequence[Any]], separator: str, fields: Mapping[str, Any], where: str
) -> Detection:
    if not any(rows):
        raise UserError(f"{where} has no label in any row: name another column with task.label.")
    names = set(fields.get("task.multi_hot", ()))
    names |= {str(name).strip() for row in rows for name in row}
    apart = f" separated by {separator!r}" if separator not in ("", LISTS) else ""
    if "task.multi_hot" in fields:
        apart = " as lists of 0 and 1 (--config.task.multi_hot names them)"
    fields = {"task.label_separator": separator, **fields, **_MULTI_LABEL_METRICS}
    return Detection("multi_label", f"any number of {len(names)} labels{apart}", fields)


def _parts(text: str, separator: str) -> list[str]:
    parts = text.split(separator) if separator else [text]
    return [part.strip() for part in parts if part.strip()]


def _separator(texts: Sequence[str]) -> str:
    """Returns the separator of a cell's labels: with it, parts are fewer than distinct cells."""
    for mark in _SEPARATORS:
        separated = sum(mark in text for text in texts)
        parts = {part for text in texts for part in _parts(text, mark)}
        if separated > _MIN_SEPARATED * len(texts) and len(parts) < len(set(texts)):
            return mark
    return ""


# ------------------------------------------------------------------ numbers and classes


def _decimal_marks(texts: Sequence[str]) -> list[str]:
    """Returns the possible decimal marks of numbers with commas; [] if there are none of these.

    If few cells have a comma, they more likely hold several labels, such as 2,27 in a data set with
    numbered labels, unless the commas group thousands.
    """
    with_comma = [text for text in texts if "," in text]
    marks = decimal_marks(texts) if with_comma else []
    if "." not in marks and len(with_comma) < _MIN_DECIMALS * len(texts):
        return []
    return marks


def _are_amounts(numbers: Counter[str], rows: int, label: str) -> bool:
    if not numbers or not all(map(is_number, numbers)):
        return False
    if any(float(number) % 1 for number in numbers):
        return True
    return len(numbers) > _MAX_GRADES and (is_amount_name(label) or not are_numbered(numbers, rows))


def _amounts(
    numbers: Counter[str], marks: Sequence[str], fields: Mapping[str, Any], where: str
) -> Detection:
    if words := [name for name in numbers if not is_number(name)]:
        raise UserError(
            f"{where} has {words[0]!r}, which is not a number, and regression needs numbers."
        )
    if not numbers:
        raise UserError(f"{where} has no numbers, and regression needs them.")
    low, high = min(map(float, numbers)), max(map(float, numbers))
    if low == high:
        raise UserError(
            f"{where}: all {numbers.total():,} numbers are {low:g}, and nothing can be learned from"
            " them: name another column with task.label."
        )
    fields = {**fields, "metrics": ("pearson", "spearman")}
    if marks:
        fields["task.decimal"] = marks[0]
    return Detection("regression", f"numbers from {low:g} to {high:g}", fields)


def _classes(counts: Counter[str], fields: Mapping[str, Any]) -> Detection:
    total, common = counts.total(), counts.most_common(_SHOWN)
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in common)
    more = ", ..." if len(counts) > _SHOWN else ""
    most, count = common[0]
    metrics, why = ("accuracy", "macro_f1"), ""
    if count > SKEWED * total:
        metrics = ("macro_f1", "accuracy")
        why = f"; macro F1 leads, as {most!r} has more than {SKEWED:.0%}"
    what = f"{len(counts)} classes ({shares}{more}{why})"
    return Detection("classification", what, {**fields, "metrics": metrics})
