"""Finds out what a file of labelled examples is for: its task, columns, and kind of labels.

    JSON with question and context, or SQuAD's nesting      span
    JSON with a list of words and a list of tags            tagging
    JSON with a text and its entities as characters         tagging
    a word and its tag a line, blank lines between          tagging
    columns or fields ending0, ending1, ..., or endings     multiple_choice
    columns or fields anchor and positive                   embedding
    any other table                                         classification

The columns of a table are known by their usual names, or else by their content;
bert_jax.data.labelled.label_kinds has the kinds of labels.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bert_jax.data.labelled.conll import is_conll
from bert_jax.data.labelled.entity_spans import is_spans
from bert_jax.data.labelled.label_kinds import (
    MULTI_LABEL_METRICS,
    PROBLEM_TYPES,
    Kind,
    is_number,
    kind_of,
    repeats,
    task_of,
)
from bert_jax.data.labelled.reading import has_objects, read_json, read_lines, read_objects
from bert_jax.data.labelled.tables import Row, form_of, parse_column, read_rows
from bert_jax.files.errors import UserError

# Usual names of columns, the most usual first; compared in lower case.
_PAIRS = (
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
_TEXTS = (
    *("text", "sentence", "text_a", "review", "content", "comment", "body", "message", "tweet"),
    *("document", "review_text", "description", "question", "title", "headline", "utterance"),
)
_LABELS = (
    *("label", "labels", "class", "category", "sentiment", "target", "intent", "emotion", "topic"),
    *("polarity", "tag", "tags", "score", "rating", "stars", "similarity", "y"),
)
# Pairs of texts to embed, which are no labelled pairs; and the names of a third text and of scores.
_POSITIVES = (("anchor", "positive"), ("query", "positive"))
_NEGATIVES = ("negative", "hard_negative")
_SCORES = ("score", "similarity", "similarity_score", "label", "rating")
_IDS = ("id", "idx", "index", "guid", "uid", "")
_WORDS, _TAGS = ("tokens", "words"), ("tags", "ner_tags", "labels", "pos_tags")
_SPANS = ("entities", "spans", "label", "labels")
_ENDING = re.compile(r"ending\d+")
_SHEETS = (".xlsx", ".xls", ".ods")
_TRUTH = {"0", "1", "0.0", "1.0", "true", "false"}
# Characters of a text, in the mean; shorter ones are names or titles.
_MIN_PROSE = 25
# Rows and lines that are read to find out the form of a file.
_MAX_ROWS = 1000
# A header's cells are names: they are short.
_MAX_NAME = 40

TASKS = (*PROBLEM_TYPES, "tagging", "span", "multiple_choice", "embedding")


@dataclass(frozen=True)
class Detection:
    """What a file of labelled examples is for.

    Attributes:
      task: one of TASKS.
      what: a description of the columns and labels, for the user.
      fields: values of the configuration of a fine-tuning run, by dotted name.
    """

    task: str
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """The name of the task's configuration, such as configs/classification.py."""
        return "classification" if self.task in PROBLEM_TYPES else self.task


def detect(path: str, given: Mapping[str, Any], task: str = "") -> Detection:
    """Returns what a file is for.

    Args:
      path: the file to train on.
      given: fields that the user set, by dotted name; they are not detected.
      task: one of TASKS; "": any.

    Raises:
      UserError: the file cannot be read, or is none of the forms above; the message says which
        field decides.
    """
    if task and task not in TASKS:
        raise UserError(f"Unknown task {task!r}. Available: {', '.join(TASKS)}.")
    if path.lower().endswith(_SHEETS):
        raise UserError(f"{path} is not text: save it as CSV, in UTF-8.")
    if has_objects(path):
        found = _of_objects(_first_object(path))
    else:
        found = _of_words(path)
    if found is None:
        found = _of_table(path, given, task)
    if task and found.task != task:
        raise UserError(f"{path} is not for task={task!r}: it has {found.what}.")
    return found


def _first_object(path: str) -> Any:
    try:
        return next(read_objects(path, Counter()), ("", {}))[1]
    except UserError:  # one value over several lines
        return read_json(path, Counter())


def _of_objects(value: Any) -> Detection | None:
    names = set(value) if isinstance(value, Mapping) else set()
    if isinstance(value, Mapping) and isinstance(value.get("data"), list):
        return Detection("span", "questions in SQuAD's form")
    if {"question", "context"} <= names or {"context_text", "qas"} <= names:
        return Detection("span", "questions, their contexts and answers")
    words, tags = _known(_WORDS, names), _known(_TAGS, names)
    if words and tags and isinstance(value[words], list):
        fields = {"data.text_a": words, "data.label": tags}
        return Detection("tagging", f"sentences of words ({words}) and tags ({tags})", fields)
    text, spans = _known(_TEXTS, names), _known(_SPANS, names)
    if text and spans and is_spans(value[spans]) and (value[spans] or spans in _SPANS[:2]):
        fields = {"data.text_a": text, "data.label": spans}
        return Detection("tagging", f"texts ({text}) and their entities ({spans})", fields)
    return None


def _of_words(path: str) -> Detection | None:
    """Returns the detection of lines of words and tags with blank lines between sentences."""
    if is_conll(path):
        return Detection("tagging", "a word and its tag a line")
    if _form_or_none(path) == "csv":
        return None
    lines = [line for _, line in islice(read_lines(path, Counter()), _MAX_ROWS)]
    while lines and not lines[-1].strip():
        lines.pop()
    widths = {len(line.split()) for line in lines if line.strip()}
    if len(widths) == 1 and widths.pop() > 1 and any(not line.strip() for line in lines):
        return Detection("tagging", "a word and its tag a line", {"head.entities": False})
    return None


def _form_or_none(path: str) -> str:
    """Returns `tables.form_of`, or "" where it is not a table."""
    try:
        return form_of(path)
    except UserError:
        return ""


# ------------------------------------------------------------------ tables


def _of_table(path: str, given: Mapping[str, Any], task: str) -> Detection:
    rows, has_header = _read(path, given)
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    if any(_ENDING.fullmatch(str(name).lower()) or name == "endings" for name in columns):
        return _of_choices(columns, given)
    if len(columns) < 2:
        raise UserError(
            f"{path} has one column, {_listed(columns)}: labelled examples have a text and a label."
        )
    pairs = ((_known((a,), columns), _known((b,), columns)) for a, b in _POSITIVES)
    pair = next((pair for pair in pairs if None not in pair), None)
    if task == "embedding" or (pair and not task and "data.text_a" not in given):
        return _of_embeddings(path, columns, given, pair)
    text_a, text_b = _texts(path, columns, given)
    label = given.get("data.label") or _label(path, columns, (text_a, text_b))
    fields: dict[str, Any] = {"data.text_a": str(text_a), "data.text_b": str(text_b)}
    names = [str(text_a)] + [str(text_b)] * (text_b != "")
    if (id := _known(_IDS[:-1], columns)) and "data.id" not in given:
        fields["data.id"] = id
    kind = _labels(path, columns, str(label), given, task)
    fields |= {"data.label": str(label), "head.problem_type": PROBLEM_TYPES[kind.task]}
    fields |= kind.fields
    header = "" if has_header else " (numbered from 0, there is no header)"
    used = {str(text_a), str(text_b), fields.get("data.id"), *str(label).split(",")}
    if others := [str(name) for name in columns if str(name) not in used]:
        header += f"; not used: {', '.join(map(repr, others))}"
    texts = f"text{'s' if len(names) > 1 else ''} {' and '.join(map(repr, names))}"
    return Detection(kind.task, f"{texts}, {kind.what} in {str(label)!r}{header}", fields)


def _read(path: str, given: Mapping[str, Any]) -> tuple[list[Row], bool]:
    """Returns the rows of a table, and whether it has a header."""
    has_header = not isinstance(parse_column(str(given.get("data.text_a", ""))), int)
    if has_header and form_of(path) != "json":
        cells = [list(row.values()) for _, row in _first_rows(path)]
        has_header = bool(given.get("data.text_a")) or _is_header(cells)
    rows = [row for _, row in read_rows(path, Counter(), has_header)]
    if not rows:
        raise UserError(f"{path} has no examples.")
    return rows, has_header


def _first_rows(path: str) -> Iterator[tuple[str, Row]]:
    """Yields the first rows of a table, the header among them; broken rows are left out."""
    return islice(read_rows(path, Counter(), False, leave_out_broken_rows=True), _MAX_ROWS)


def _is_header(cells: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row of a table has names: short, and not those of a label."""
    if not cells:
        return True
    first, rest = [cell.strip() for cell in cells[0]], cells[1:]
    if {name.lower() for name in first} & {*_TEXTS, *_LABELS, *sum(_PAIRS, ())}:
        return True
    if any(len(name) > _MAX_NAME or is_number(name) for name in first):
        return False
    columns = list(zip(*rest, strict=False))
    return not any(
        name in map(str.strip, column) for name, column in zip(first, columns, strict=False)
    )


def _known(names: Sequence[str], columns: Any) -> Any:
    """Returns the first of `names` that is a column, as the file writes it; None: there is none."""
    written = {str(column).strip().lower(): column for column in columns}
    return next((written[name] for name in names if name in written), None)


def _texts(
    path: str, columns: Mapping[Any, list[Any]], given: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Returns the columns of the text and the second one, "" if there is none."""
    if text_a := given.get("data.text_a"):
        return parse_column(str(text_a)), given.get("data.text_b", "")
    for first, second in _PAIRS:
        pair = _known((first,), columns), _known((second,), columns)
        if None not in pair and "data.text_b" not in given:
            return pair
    label = given.get("data.label") or _known(_LABELS, columns)
    lengths = {name: _mean_length(values) for name, values in columns.items() if name != label}
    longest = max(lengths, key=lengths.__getitem__, default=None)
    if (text := _known(_TEXTS, lengths)) is None:
        text = longest
    if text is None or lengths[text] == 0:
        raise UserError(
            f"{path} has no column of texts, only {_listed(columns)}: name it with data.text_a."
        )
    if "data.text_b" in given:
        return text, given["data.text_b"]
    # Leaving out half of a pair would make the task impossible; another text does little harm.
    both = [n for n in lengths if n == text or _is_prose(columns[n], lengths[n])]
    return (both[0], both[1]) if len(both) == 2 else (text, "")


def _is_prose(values: Sequence[Any], mean_length: float) -> bool:
    distinct = _strings(values)
    return mean_length >= _MIN_PROSE and len(distinct) > 2 and not any(map(is_number, distinct))


def _label(path: str, columns: Mapping[Any, list[Any]], texts: Sequence[Any]) -> Any:
    """Returns the column of the label, or several columns of 0 and 1 as "a,b,c"."""
    others = {
        name: values
        for name, values in columns.items()
        if name not in texts and str(name).lower() not in _IDS
    }
    if (label := _known(_LABELS, others)) is not None:
        return label
    binary = [name for name, values in others.items() if _strings(values) <= _TRUTH]
    if len(binary) > 1 and len(binary) == len(others):
        return ",".join(map(str, binary))
    repeated = [
        name
        for name, values in others.items()
        if repeats(_strings(values), len(values)) or all(map(is_number, _strings(values)))
    ]
    if not repeated:
        raise UserError(
            f"{path} has no column of labels among {_listed(columns)}: name it with data.label."
        )
    return repeated[-1]


def _labels(
    path: str, columns: Mapping[Any, list[Any]], label: str, given: Mapping[str, Any], task: str
) -> Kind:
    """Returns the kind of the labels in one column, or in several as "a,b,c"."""
    if (values := columns.get(parse_column(label), columns.get(label))) is not None:
        separator = str(given.get("data.label_separator", ""))
        where = f"{path}: the column {label!r}"
        return kind_of(values, task or task_of(given), separator, where)
    names = [name.strip() for name in label.split(",")]
    if missing := [name for name in names if name not in columns]:
        raise UserError(
            f"{path} has no column {missing[0]!r} (data.label), only {_listed(columns)}."
        )
    return Kind("multi_label", f"{len(names)} columns of 0 and 1", MULTI_LABEL_METRICS)


def _of_choices(columns: Mapping[Any, list[Any]], given: Mapping[str, Any]) -> Detection:
    context = _known(("sent1", "context", "question", "text_a", "text"), columns)
    start = _known(("sent2", "text_b"), columns)
    fields = {
        "data.text_a": context or "",
        "data.text_b": start or "",
        "data.label": _known(("label", "answer", "gold"), columns) or "label",
        "data.endings": ("endings",) if "endings" in columns else (),
    }
    return Detection("multiple_choice", f"contexts ({context}) and their endings", fields)


def _of_embeddings(
    path: str,
    columns: Mapping[Any, list[Any]],
    given: Mapping[str, Any],
    pair: tuple[Any, Any] | None,
) -> Detection:
    """Returns the detection of pairs of texts to embed; `pair` are their columns, if known."""
    if pair is None or "data.text_a" in given:
        pair = _texts(path, columns, given)
    names = list(map(str, pair))
    if not names[1]:
        raise UserError(
            f"{path} has no pairs of texts among {_listed(columns)}: name their columns with"
            " data.text_a and data.text_b."
        )
    fields: dict[str, Any] = {"data.text_a": names[0], "data.text_b": names[1]}
    if (id := _known(_IDS[:-1], columns)) and "data.id" not in given:
        fields["data.id"] = id
    label = given.get("data.label") or _known(_SCORES, columns)
    if label and all(map(is_number, _strings(columns.get(parse_column(str(label)), [""])))):
        fields |= {"data.label": str(label), "head.embedding_loss": "cosent"}
        fields["metrics"] = ("spearman", "pearson")
        what = f"pairs of texts ({names[0]}, {names[1]}) and their scores ({label})"
        return Detection("embedding", what, fields)
    if negative := _known(_NEGATIVES, columns):
        fields["data.negative"] = str(negative)
        names.append(str(negative))
    return Detection("embedding", f"texts to embed ({', '.join(names)})", fields)


# ------------------------------------------------------------------ values


def _strings(values: Sequence[Any]) -> set[str]:
    return {str(value).strip().lower() for value in values}


def _mean_length(values: Sequence[Any]) -> float:
    return sum(len(value) if isinstance(value, str) else 0 for value in values) / len(values)


def _listed(columns: Any) -> str:
    return ", ".join(repr(str(name)) for name in columns)
