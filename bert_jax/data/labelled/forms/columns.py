"""Finds the columns of texts and labels in a table: by their names, or else by what they hold.

Names match as a whole or by their parts: `airline_sentiment` and `SentimentScore` end in the name
of a label, `is_spam` begins like one. By content, a text is long prose, and a label repeats its
values. Columns of one value, of mostly empty cells, and of whole numbers that are all different
(they identify rows) hold no labels. Where several columns remain, the user decides.
"""

import re
from collections.abc import Sequence
from typing import Any

from bert_jax.data.labelled.cells import (
    are_numbered,
    decimal_marks,
    is_missing_label,
    is_number,
    repeats,
)
from bert_jax.data.labelled.forms.table import IDS, LABELS, PAIRS, TEXTS, Table, known, listed
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError

# First parts of the names of yes-or-no labels.
_YES_OR_NO = {"is", "has"}
# Labels with such names are amounts.
_AMOUNTS = {"score", "rating", "similarity", "grade", "points", "price", "amount"}
# Last parts of the names of labels.
_LABEL_PARTS = {*LABELS, *_AMOUNTS, "emotions", "judgment", "judgement", "stance", "type"}
# Last parts of the names of columns that hold neither texts nor labels.
_OTHERS = {
    *IDS,
    *("ids", "key", "hash", "date", "time", "timestamp", "timezone", "created", "updated", "url"),
    *("link", "path", "file", "filename", "user", "username", "authors", "confidence"),
}
# Minimum mean length of texts, in characters (shorter ones are names or titles), and minimum share
# of letters and spaces.
_MIN_PROSE, _MIN_LETTERS = 25, 0.7
# Minimum share of a label's cells that are filled.
_MIN_FILLED = 0.5
# Maximum number of distinct values per row of a column of few classes.
_FEW = 0.1
# Values of columns of zeros and ones.
_BINARY = {"0", "1", "0.0", "1.0"}


def find_texts(table: Table) -> tuple[Any, Any]:
    """Returns the columns of the text and of the second one, "" if there is none."""
    given, columns = table.given, table.columns
    if text_a := given.get("task.text_a"):
        return parse_column(str(text_a)), given.get("task.text_b", "")
    label = table.named("label", LABELS)
    lengths = {
        name: sum(len(value) for value in values if isinstance(value, str)) / len(values)
        for name, values in columns.items()
        if str(name) != str(label) and _has_texts(values)
    }
    if "task.text_b" not in given and (
        pair := table.pair(PAIRS) or _numbered_pair(table, list(lengths))
    ):
        return pair
    text = known(TEXTS, lengths)
    if text is None:
        named = [name for name in lengths if _last_part(name) in TEXTS]
        others = [name for name in lengths if not _is_other(name)]
        others = [name for name in others if _are_words(columns[name])] or others
        text = max(named or others, key=lengths.__getitem__, default=None)
    if text is None:
        raise UserError(f"{table.path} has no column of texts: {_contents(table)}.")
    if "task.text_b" in given:
        return text, given["task.text_b"]

    def is_prose(name: Any) -> bool:
        """Whether a column has long texts of words, unlike dates or addresses."""
        values = columns[name]
        is_long = lengths[name] >= _MIN_PROSE and not _is_other(name)
        return is_long and len(_distinct(values)) > 2 and _are_words(values)

    # Leaving out half of a pair would make the task impossible; another text does little harm.
    both = [name for name in lengths if name == text or is_prose(name)]
    return (both[0], both[1]) if len(both) == 2 else (text, "")


def _numbered_pair(table: Table, names: Sequence[Any]) -> tuple[Any, Any] | None:
    """Returns the only two columns whose names differ by 1, 2 or a, b."""
    for marks in (("1", "2"), ("a", "b")):
        by_rest = {}
        for name in names:
            parts = _parts(name)
            if len(found := [part for part in parts if part in marks]) == 1 and len(parts) > 1:
                rest = tuple(part for part in parts if part not in marks)
                by_rest.setdefault(rest, {})[found[0]] = name
        pairs = [(p[marks[0]], p[marks[1]]) for p in by_rest.values() if len(p) == 2]
        pairs = [p for p in pairs if all(len(_distinct(table.columns[n])) > 2 for n in p)]
        if len(pairs) == 1:
            return pairs[0]
    return None


def find_label(table: Table, texts: Sequence[Any], task: str = "") -> Any:
    """Returns the column of the label, or several columns of 0 and 1 as "a,b,c".

    For a "regression" it has numbers; `task` is "" for any. UserError: no column may be it, or
    several may.
    """
    others = {
        name: values
        for name, values in table.columns.items()
        if name not in texts and str(name).strip().lower() not in (*IDS, "")
    }
    possible = {name: values for name, values in others.items() if _may_be_label(values)}
    if (label := known(LABELS, possible)) is not None:
        return label
    named = [name for name in possible if _is_label_name(name)]
    if len(named) == 1:
        return named[0]
    if not named and (label := known(LABELS, others)) is not None:
        return label  # its kind says what is wrong with it
    candidates = named or [name for name in possible if not _is_other(name)]
    binary = [name for name in possible if _distinct(possible[name]) <= _BINARY]
    if binary and len(binary) == len(candidates):
        # The column of a rare label has no 1 in a small file.
        constant = [{value} for value in _BINARY]
        several = [n for n in others if n in binary or _distinct(others[n]) in constant]
        if len(several) > 1:
            return ",".join(map(str, several))
    better_kinds = () if named else (_has_classes, _has_few_classes)
    for is_better in (_has_numbers,) if task == "regression" else better_kinds:
        candidates = [name for name in candidates if is_better(possible[name])] or candidates
    if len(candidates) > 1:
        raise UserError(
            f"{table.path} has several columns that may be the label, {listed(candidates)}: choose"
            f" with --config.task.label={candidates[-1]}."
        )
    if not candidates:
        pairs = " For pairs of texts that belong together: --task=embedding." if texts[1] else ""
        raise UserError(
            f"{table.path} has no column of labels: {_contents(table)}. Name it with"
            f" task.label.{pairs}"
        )
    return candidates[0]


def is_amount_name(name: Any) -> bool:
    """Returns whether a name is, by its parts, that of an amount, such as `review_score`."""
    return _last_part(name) in _AMOUNTS


def _is_label_name(name: Any) -> bool:
    parts = [part for part in _parts(name) if not part.isdecimal()]
    return len(parts) > 0 and (parts[-1] in _LABEL_PARTS or parts[0] in _YES_OR_NO)


def _is_other(name: Any) -> bool:
    return isinstance(name, str) and _last_part(name) in _OTHERS


def _last_part(name: Any) -> str:
    return (_parts(name) or [""])[-1]


def _parts(name: Any) -> list[str]:
    """Returns the words of a name in lower case: SentimentText, sentiment-text -> both."""
    return [p.lower() for p in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", str(name))]


def _may_be_label(values: Sequence[Any]) -> bool:
    filled = [value for value in values if not is_missing_label(value)]
    distinct = _distinct(filled)
    if len(distinct) < 2 or len(filled) < _MIN_FILLED * len(values):
        return False
    if len(distinct) == len(filled) and all(text.lstrip("-").isdecimal() for text in distinct):
        return False
    has_lists = any(isinstance(value, list) for value in filled)
    return has_lists or repeats(distinct, len(filled)) or bool(decimal_marks(distinct))


def _has_numbers(values: Sequence[Any]) -> bool:
    return len(decimal_marks(_distinct(values))) > 0


def _has_classes(values: Sequence[Any]) -> bool:
    distinct = _distinct(values)
    if any(isinstance(value, list) for value in values) or not decimal_marks(distinct):
        return True
    few = len(distinct) <= 10 and all(number.isdecimal() for number in distinct)
    return few or are_numbered(distinct, len(values))


def _has_few_classes(values: Sequence[Any]) -> bool:
    return len(_distinct(values)) <= max(2, _FEW * len(values))


def _distinct(values: Sequence[Any]) -> set[str]:
    return {str(value).strip().lower() for value in values if not is_missing_label(value)}


def _has_texts(values: Sequence[Any]) -> bool:
    """Returns whether cells are texts, and not all numbers."""
    distinct = {value for value in values if isinstance(value, str) and value.strip()}
    return len(distinct) > 0 and not all(map(is_number, distinct))


def _are_words(values: Sequence[Any]) -> bool:
    """Returns whether texts are mostly letters and spaces, unlike dates or addresses."""
    text = "".join(value for value in values if isinstance(value, str))
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return letters >= _MIN_LETTERS * len(text) and not text.startswith(("http", "www."))


def _contents(table: Table) -> str:
    """Returns what each column holds, for a message."""
    shown = []
    for name, values in table.columns.items():
        distinct, inner = _distinct(values), {dict: "objects", list: "lists"}.get(type(values[0]))
        if inner:
            what = f"has {inner}"
        elif len(distinct) < 2:
            what = "has one value" if distinct else "is empty"
        elif all(map(is_number, distinct)):
            what = "has numbers"
        elif repeats(distinct, len(values)):
            what = f"repeats {len(distinct):,} values"
        else:
            what = f"has {len(distinct):,} different values"
        shown.append(f"{str(name)!r} {what}")
    return ", ".join(shown)
