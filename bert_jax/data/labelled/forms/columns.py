"""Finds the columns of texts and labels in a table: by their names, or else by what they hold.

Names count whole or by their parts: `airline_sentiment` and `SentimentScore` end in the name of a
label, `is_spam` begins as one. By content, a text is long prose, and a label repeats its values.
Columns of one value, of mostly empty cells, and of whole numbers that are all different (they
identify rows) hold no labels. Where several columns remain, the user decides.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bert_jax.data.labelled.cells import decimal_marks, is_number
from bert_jax.data.labelled.forms.label_kinds import are_numbered, repeats
from bert_jax.data.labelled.missing import is_missing_label
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError

# Column (name, or number from 0) -> its cells.
Table = Mapping[Any, Sequence[Any]]

# Usual names of columns, the most usual first; compared in lower case.
PAIRS = (
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("query", "passage"),
    ("query", "document"),
    ("question", "sentence"),
    ("question", "answer"),
)
TEXTS = (
    *("text", "sentence", "text_a", "review", "content", "comment", "body", "message", "tweet"),
    *("document", "review_text", "description", "question", "title", "headline", "utterance"),
    *("abstract", "post", "article", "query", "statement", "phrase", "summary", "prompt", "v2"),
)
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "sentiment", "stance", "target"),
    *("intent",),
    *("emotion", "topic", "polarity", "quality", "tag", "tags", "score", "rating", "stars"),
    *("similarity", "y", "v1"),
)
# First parts of the names of labels that are yes or no.
_YES_OR_NO = {"is", "has"}
# Labels with such names are amounts.
_AMOUNTS = {"score", "rating", "similarity", "grade", "points", "price", "amount"}
# Last parts of the names of labels.
_LABEL_PARTS = {*LABELS, *_AMOUNTS, "emotions", "judgment", "judgement", "stance", "type"}
IDS = ("id", "idx", "index", "guid", "uid", "")
# Last parts of the names of columns that hold neither texts nor labels.
_OTHERS = {
    *IDS,
    *("ids", "key", "hash", "date", "time", "timestamp", "timezone", "created", "updated", "url"),
    *("link", "path", "file", "filename", "user", "username", "authors", "confidence"),
}
# Characters of a text, in the mean; shorter ones are names or titles. Share of letters and spaces.
_MIN_PROSE, _MIN_LETTERS = 25, 0.7
# Share of the cells of a label that are filled.
_MIN_FILLED = 0.5
# A header's cells are names: they are short.
_MAX_NAME = 40
# Values for each row of a column of few classes.
_FEW = 0.1


def known(names: Sequence[str], columns: Any) -> Any:
    """Returns the first of `names` that is a column, as the file writes it; None: there is none."""
    written = {str(column).strip().lower(): column for column in columns}
    return next((written[name] for name in names if name in written), None)


def listed(columns: Any) -> str:
    """Returns the names of columns for a message."""
    return ", ".join(repr(str(name)) for name in columns)


def is_header(cells: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row of a table has names: short, and not those of a label."""
    if not cells:
        return True
    first, rest = [cell.strip() for cell in cells[0]], cells[1:]
    columns = list(zip(*rest, strict=False))
    # The name of a class, such as "question", may be that of a column too.
    if any(name and name in map(str.strip, c) for name, c in zip(first, columns, strict=False)):
        return False
    if {name.lower() for name in first} & {*TEXTS, *LABELS, *sum(PAIRS, ())}:
        return True
    return not any(len(name) > _MAX_NAME or is_number(name) for name in first)


def find_texts(path: str, columns: Table, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the columns of the text and of the second one, "" if there is none.

    Args:
      path: the file, for messages.
      columns: the table.
      given: fields that the user set, by dotted name.

    Raises:
      UserError: no column has texts.
    """
    if text_a := given.get("task.text_a"):
        return parse_column(str(text_a)), given.get("task.text_b", "")
    label = given.get("task.label") or known(LABELS, columns)
    lengths = {
        name: _mean_length(values)
        for name, values in columns.items()
        if str(name) != str(label) and _has_texts(values)
    }
    if "task.text_b" not in given and (pair := _pair(columns, lengths)):
        return pair
    text = known(TEXTS, lengths)
    if text is None:
        named = [name for name in lengths if _parts(name)[-1:] and _parts(name)[-1] in TEXTS]
        others = [name for name in lengths if not _is_other(name)]
        others = [name for name in others if _are_words(columns[name])] or others
        text = max(named or others, key=lengths.__getitem__, default=None)
    if text is None:
        raise UserError(f"{path} has no column of texts: {_contents(columns)}.")
    if "task.text_b" in given:
        return text, given["task.text_b"]
    # Leaving out half of a pair would make the task impossible; another text does little harm.
    both = [n for n in lengths if n == text or _is_prose(n, columns[n], lengths[n])]
    return (both[0], both[1]) if len(both) == 2 else (text, "")


def _pair(columns: Table, lengths: Collection[Any]) -> tuple[Any, Any] | None:
    """Returns the columns of a pair: by their names, or because these differ by 1, 2 or a, b."""
    for first, second in PAIRS:
        if None not in (pair := (known((first,), columns), known((second,), columns))):
            return pair
    for marks in (("1", "2"), ("a", "b")):
        by_rest = {}
        for name in lengths:
            parts = _parts(name)
            if len(found := [part for part in parts if part in marks]) == 1 and len(parts) > 1:
                rest = tuple(part for part in parts if part not in marks)
                by_rest.setdefault(rest, {})[found[0]] = name
        pairs = [p for p in by_rest.values() if len(p) == 2]
        pairs = [tuple(p[mark] for mark in marks) for p in pairs]
        pairs = [p for p in pairs if all(len(_distinct(columns[n])) > 2 for n in p)]
        if len(pairs) == 1:
            return pairs[0]
    return None


def find_label(path: str, columns: Table, texts: Sequence[Any], task: str = "") -> Any:
    """Returns the column of the label, or several columns of 0 and 1 as "a,b,c".

    Args:
      path: the file, for messages.
      columns: the table.
      texts: the columns of texts.
      task: "regression": numbers only; "": any.

    Raises:
      UserError: none may be the label, or several.
    """
    others = {
        name: values
        for name, values in columns.items()
        if name not in texts and str(name).strip().lower() not in IDS
    }
    possible = {name: values for name, values in others.items() if may_be_label(values)}
    if (label := known(LABELS, possible)) is not None:
        return label
    named = [name for name in possible if is_label_name(name)]
    if len(named) == 1:
        return named[0]
    if not named and (label := known(LABELS, others)) is not None:
        return label  # its kind says what is wrong with it
    candidates = named or [name for name in possible if not _is_other(name)]
    binary = [name for name in possible if _distinct(possible[name]) <= {"0", "1", "0.0", "1.0"}]
    if binary and len(binary) == len(candidates):
        several = [str(name) for name in others if name in binary or _is_zero(others[name])]
        if len(several) > 1:
            return ",".join(several)
    better_kinds = () if named else (_has_classes, _has_few_classes)
    for is_better in (_is_amount,) if task == "regression" else better_kinds:
        better = [name for name in candidates if is_better(possible[name])]
        candidates = better or candidates
    if len(candidates) > 1:
        raise UserError(
            f"{path} has several columns that may be the label, {listed(candidates)}: choose with"
            f" --config.task.label={candidates[-1]}."
        )
    if not candidates:
        pairs = " For pairs of texts that belong together: --task=embedding." if texts[1] else ""
        raise UserError(
            f"{path} has no column of labels: {_contents(columns)}. Name it with task.label.{pairs}"
        )
    return candidates[0]


def is_label_name(name: Any) -> bool:
    """Returns whether a name is, by its parts, that of a label."""
    parts = [part for part in _parts(name) if not part.isdecimal()]
    return len(parts) > 0 and (parts[-1] in _LABEL_PARTS or parts[0] in _YES_OR_NO)


def is_amount_name(name: Any) -> bool:
    """Returns whether a name is, by its parts, that of an amount, such as `review_score`."""
    return not _AMOUNTS.isdisjoint(_parts(name)[-1:])


def may_be_label(values: Sequence[Any]) -> bool:
    """Returns whether a column may be the label, by its cells."""
    filled = [value for value in values if not is_missing_label(value)]
    distinct = _distinct(filled)
    if len(distinct) < 2 or len(filled) < _MIN_FILLED * len(values):
        return False
    if len(distinct) == len(filled) and all(text.lstrip("-").isdecimal() for text in distinct):
        return False
    return any(isinstance(value, list) for value in filled) or (
        repeats(distinct, len(filled)) or _are_numbers(distinct)
    )


# ------------------------------------------------------------------ values


def _has_classes(values: Sequence[Any]) -> bool:
    distinct, rows = _distinct(values), len(values)
    if any(isinstance(value, list) for value in values) or not _are_numbers(distinct):
        return True
    few = len(distinct) <= 10 and all(number.isdecimal() for number in distinct)
    return few or are_numbered(distinct, rows)


def _has_few_classes(values: Sequence[Any]) -> bool:
    return len(_distinct(values)) <= max(2, _FEW * len(values))


def _is_amount(values: Sequence[Any]) -> bool:
    return _are_numbers(_distinct(values))


def _are_numbers(texts: Collection[str]) -> bool:
    return len(decimal_marks(texts)) > 0


def _is_zero(values: Sequence[Any]) -> bool:
    """Returns whether a column of 0 and 1 has no 1, as that of a rare label in a small file."""
    return _distinct(values) in ({"0"}, {"1"}, {"0.0"}, {"1.0"})


def _distinct(values: Sequence[Any]) -> set[str]:
    return {str(value).strip().lower() for value in values if not is_missing_label(value)}


def _mean_length(values: Sequence[Any]) -> float:
    return sum(len(value) if isinstance(value, str) else 0 for value in values) / len(values)


def _has_texts(values: Sequence[Any]) -> bool:
    """Returns whether cells are texts, and not all numbers."""
    distinct = {value for value in values if isinstance(value, str) and value.strip()}
    return len(distinct) > 0 and not all(map(is_number, distinct))


def _is_prose(name: Any, values: Sequence[Any], mean_length: float) -> bool:
    """Returns whether a column has long texts of words, as a date or an address is not."""
    if mean_length < _MIN_PROSE or _is_other(name) or len(_distinct(values)) <= 2:
        return False
    return _are_words(values)


def _are_words(values: Sequence[Any]) -> bool:
    """Returns whether texts have letters and spaces mostly, as a date or an address has not."""
    text = "".join(value for value in values if isinstance(value, str))
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return letters >= _MIN_LETTERS * len(text) and not text.startswith(("http", "www."))


def _parts(name: Any) -> list[str]:
    """Returns the words of a name in lower case: SentimentText, sentiment-text -> both."""
    return [p.lower() for p in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", str(name))]


def _is_other(name: Any) -> bool:
    return isinstance(name, str) and not _OTHERS.isdisjoint(_parts(name)[-1:])


def _contents(columns: Table) -> str:
    """Returns what each column holds, for a message."""
    kinds: list[tuple[str, Callable[[set[str], int], bool]]] = [
        ("is empty", lambda distinct, rows: not distinct),
        ("has one value", lambda distinct, rows: len(distinct) == 1),
        ("has numbers", lambda distinct, rows: all(map(is_number, distinct))),
        ("repeats {} values", lambda distinct, rows: repeats(distinct, rows)),
        ("has {} different values", lambda distinct, rows: True),
    ]
    shown = []
    for name, values in columns.items():
        distinct = _distinct(values)
        inner = {dict: "objects", list: "lists"}.get(type(values[0]))
        what = next(what for what, holds in kinds if holds(distinct, len(values)))
        what = f"has {inner}" if inner else what
        shown.append(f"{str(name)!r} {what.format(f'{len(distinct):,}')}")
    return ", ".join(shown)
