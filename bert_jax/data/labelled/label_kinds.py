"""What the values in the column of the labels are: classes, numbers, or several labels a row.

They are several a row (`multi_label`) if cells are lists or have parts that recur in other cells;
numbers (`regression`) if some have a fraction, or if there are more than _MAX_GRADES of them; else
classes.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.files.errors import UserError

# Task -> value of `head.problem_type`.
PROBLEM_TYPES = {"classification": "single", "regression": "regression", "multi_label": "multi"}
MULTI_LABEL_METRICS = {"metrics": ("macro_f1", "f1")}
_SEPARATORS = (",", ";", "|")
# Share of the cells that have a separator.
_MIN_SEPARATED = 0.05
# Distinct whole numbers that are still classes, such as the stars of a review.
_MAX_GRADES = 10
# A column of labels repeats them: distinct values for each row.
_MAX_DISTINCT = 0.5
# Share of the examples above which a class makes accuracy a poor score: the constant answer has it.
_SKEWED = 0.8
_SHOWN = 6


@dataclass(frozen=True)
class Kind:
    """A kind of labels.

    Attributes:
      task: a key of PROBLEM_TYPES.
      what: a description, for the user.
      fields: values of the configuration, by dotted name.
    """

    task: str
    what: str
    fields: Mapping[str, Any]


def task_of(given: Mapping[str, Any]) -> str:
    """Returns the task of the problem type that the user sets; "" if there is none."""
    names = {kind: name for name, kind in PROBLEM_TYPES.items()}
    return names.get(str(given.get("head.problem_type")), "")


def kind_of(values: Sequence[Any], task: str, separator: str, where: str) -> Kind:
    """Returns the kind of the labels in a column.

    Args:
      values: the cells.
      task: a key of PROBLEM_TYPES; "": any.
      separator: separator of the labels of a cell; "": to find out.
      where: the column, for messages.

    Raises:
      UserError: the values cannot be labels of the task.
    """
    separator = separator or _separator(values)
    has_lists = any(isinstance(value, list) for value in values)
    if task == "multi_label" or (not task and (has_lists or separator)):
        names = {name for value in values for name in _parts(value, separator)}
        apart = f" separated by {separator!r}" if separator else ""
        fields = {"data.label_separator": separator, **MULTI_LABEL_METRICS}
        return Kind("multi_label", f"any number of {len(names)} labels{apart}", fields)
    counts = Counter(str(value).strip() for value in values)
    if task == "regression" or (not task and _are_amounts(counts)):
        if words := [name for name in counts if not is_number(name)]:
            raise UserError(f"{where} has {words[0]!r}, which is no number, as regression needs.")
        low, high = min(map(float, counts)), max(map(float, counts))
        fields = {"metrics": ("pearson", "spearman")}
        return Kind("regression", f"numbers from {low:g} to {high:g}", fields)
    if not repeats(counts, len(values)):
        raise UserError(
            f"{where} has {len(counts):,} different values in {len(values):,} rows, so these are no"
            " labels: name another column with data.label."
        )
    return _classes(counts)


def _classes(counts: Counter[str]) -> Kind:
    total, common = counts.total(), counts.most_common(_SHOWN)
    shares = ", ".join(f"{name} {count / total:.0%}" for name, count in common)
    more = ", ..." if len(counts) > _SHOWN else ""
    most, count = common[0]
    metrics, why = ("accuracy", "macro_f1"), ""
    if count > _SKEWED * total:
        metrics = ("macro_f1", "accuracy")
        why = f"; macro F1 leads, as {most!r} has more than {_SKEWED:.0%}"
    what = f"{len(counts)} classes ({shares}{more}{why})"
    return Kind("classification", what, {"metrics": metrics})


def repeats(distinct: Collection[str], rows: int) -> bool:
    """Returns whether a column with these values repeats them, as one of labels does."""
    return len(distinct) <= max(2, _MAX_DISTINCT * rows)


def is_number(text: str) -> bool:
    """Returns whether a text is a number; NaN is none."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _are_amounts(names: Collection[str]) -> bool:
    if not all(map(is_number, names)):
        return False
    return len(names) > _MAX_GRADES or any(float(name) % 1 for name in names)


def _parts(value: Any, separator: str) -> list[str]:
    if isinstance(value, list):
        return list(map(str, value))
    text = str(value or "")
    parts = text.split(separator) if separator else [text]
    return [part.strip() for part in parts if part.strip()]


def _separator(values: Sequence[Any]) -> str:
    """Returns what separates the labels of a cell: there are fewer parts than whole cells."""
    for mark in _SEPARATORS:
        separated = sum(mark in str(value) for value in values)
        parts = {part for value in values for part in _parts(value, mark)}
        whole = {str(value).strip() for value in values}
        if separated > _MIN_SEPARATED * len(values) and len(parts) < len(whole):
            return mark
    return ""
