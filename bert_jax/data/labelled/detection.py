"""Finds out what a file of labelled examples is for: its task, columns, and kind of labels.

    JSON with question and context, or SQuAD's nesting      span
    JSON with a list of words and a list of tags            tagging
    JSON with a text and its entities as characters         tagging
    a word and its tag a line, blank lines between          tagging
    columns or fields ending0, ending1, ..., or endings     multiple_choice
    columns or fields anchor and positive                   embedding
    any other table                                         classification

The columns of a table are known by their usual names, or else by their content;
bert_jax.data.labelled.forms.label_kinds has the kinds of labels.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bert_jax.data.labelled.cells import is_number
from bert_jax.data.labelled.choices import ENDING
from bert_jax.data.labelled.forms.columns import (
    IDS,
    find_label,
    find_texts,
    is_amount_name,
    is_header,
    known,
    listed,
)
from bert_jax.data.labelled.forms.label_kinds import (
    MULTI_LABEL_METRICS,
    PROBLEM_TYPES,
    Kind,
    kind_of,
    task_of,
)
from bert_jax.data.labelled.forms.refused import refuse_columns, refuse_lines, refuse_object
from bert_jax.data.labelled.forms.word_files import detect_columns, detect_words
from bert_jax.data.labelled.missing import is_missing_label
from bert_jax.data.labelled.questions import is_question_table
from bert_jax.data.labelled.reading import has_objects, is_object, read_json, read_objects
from bert_jax.data.labelled.table_rows import Row, form_of, read_rows
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError
from bert_jax.text.files import refuse_spreadsheet

# Pairs of texts to embed, which are no labelled pairs; and the names of a third text and of scores.
_POSITIVES = (("anchor", "positive"), ("query", "positive"))
_NEGATIVES = ("negative", "hard_negative")
_SCORES = ("score", "similarity", "similarity_score", "label", "rating")
_CHOICE = re.compile(r"(choice|option|sol|solution|answer)_?(\d|[a-e])")
_ENDINGS = ("endings", "options", "choices")
_CONTEXTS = (
    *("sent1", "context", "ctx", "article", "passage", "premise", "goal", "question", "text_a"),
    *("text", "sentence"),
)
# Rows that are read to find out whether a table has a header.
_MAX_ROWS = 1000

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
    refuse_spreadsheet(path)
    found = None
    if has_objects(path):
        refuse_object(path, value := _first_object(path))
        found = _of_object(value)
    else:
        refuse_lines(path)
        if (fields := detect_columns(path)) is not None:
            found = Detection("tagging", "a word and its tag a line", fields)
    if found is None:
        found = _of_table(path, given, task)
    if task and found.task != task:
        raise UserError(f"{path} is not for task={task!r}: it has {found.what}.")
    return found


def _first_object(path: str) -> Any:
    try:
        return next(read_objects(path, Counter()), ("", {}))[1]
    except UserError:
        if not (os.path.isfile(path) and is_object(path)):
            raise
        return read_json(path, Counter())  # one value over several lines


def _of_object(value: Any) -> Detection | None:
    """Returns the detection of JSON that has questions with their contexts."""
    names = set(value) if isinstance(value, Mapping) else set()
    if isinstance(value, Mapping) and isinstance(value.get("data"), list):
        return Detection("span", "questions in SQuAD's form")
    if "qas" in names and {"context", "context_text"} & names:
        return Detection("span", "contexts with questions (qas)")
    return None


# ------------------------------------------------------------------ tables


def _of_table(path: str, given: Mapping[str, Any], task: str) -> Detection:
    rows, has_header = _read(path, given)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    refuse_columns(path, columns)
    endings = _endings(path, columns) if task in ("", "multiple_choice") else None
    if endings is not None:
        return _of_choices(columns, endings)
    if task in ("", "span") and "task.label" not in given and is_question_table(columns):
        return Detection("span", "questions, their contexts and answers")
    if task in ("", "tagging") and "task.problem_type" not in given:
        if (words := detect_words(path, columns, given)) is not None:
            return Detection("tagging", *words)
    if len(columns) < 2:
        raise UserError(
            f"{path} has one column, {listed(columns)[:60]}: labelled examples have a text and a"
            " label, in columns separated by commas, semicolons, tabs or | (.csv) or by tabs."
        )
    pairs = ((known((a,), columns), known((b,), columns)) for a, b in _POSITIVES)
    pair = next((pair for pair in pairs if None not in pair), None)
    if task == "embedding" or (pair and not task and "task.text_a" not in given):
        return _of_embeddings(path, columns, given, pair)
    text_a, text_b = find_texts(path, columns, given)
    problem = task or task_of(given)
    label = given.get("task.label") or find_label(path, columns, (text_a, text_b), problem)
    fields: dict[str, Any] = {"task.text_a": str(text_a), "task.text_b": str(text_b)}
    texts = [str(text_a)] + [str(text_b)] * (text_b != "")
    if (id := known(IDS[:-1], columns)) and "task.id" not in given:
        fields["task.id"] = id
    kind = _labels(path, columns, str(label), given, problem)
    fields |= {"task.label": str(label), "task.problem_type": PROBLEM_TYPES[kind.task]}
    fields |= kind.fields
    header = "" if has_header else " (numbered from 0, there is no header)"
    used = {str(text_a), str(text_b), fields.get("task.id"), *str(label).split(",")}
    if others := [str(name) for name in columns if str(name) not in used]:
        header += f"; not used: {', '.join(map(repr, others))}"
    named = f"text{'s' if len(texts) > 1 else ''} {' and '.join(map(repr, texts))}"
    return Detection(kind.task, f"{named}, {kind.what} in {str(label)!r}{header}", fields)


def _read(path: str, given: Mapping[str, Any]) -> tuple[list[Row], bool]:
    """Returns the rows of a table, and whether it has a header."""
    has_header = not isinstance(parse_column(str(given.get("task.text_a", ""))), int)
    if has_header and form_of(path) != "json":
        first = islice(read_rows(path, Counter(), False, leave_out_broken_rows=True), _MAX_ROWS)
        cells = [list(row.values()) for _, row in first]
        has_header = bool(given.get("task.text_a")) or is_header(cells)
    rows = [row for _, row in read_rows(path, Counter(), has_header)]
    if not rows:
        raise UserError(f"{path} has no examples.")
    return rows, has_header


def _labels(
    path: str, columns: Mapping[Any, list[Any]], label: str, given: Mapping[str, Any], task: str
) -> Kind:
    """Returns the kind of the labels in one column, or in several as "a,b,c"."""
    if (values := columns.get(parse_column(label), columns.get(label))) is not None:
        where = f"{path}: the column {label!r}"
        return kind_of(values, task, given, where, grades=is_amount_name(label))
    names = [name.strip() for name in label.split(",")]
    if missing := [name for name in names if name not in columns]:
        raise UserError(
            f"{path} has no column {missing[0]!r} (task.label), only {listed(columns)}."
        )
    return Kind("multi_label", f"{len(names)} columns of 0 and 1", MULTI_LABEL_METRICS)


def _endings(path: str, columns: Mapping[Any, list[Any]]) -> tuple[str, ...] | None:
    """Returns the columns of endings, () for ending0, ending1, ...; or the one of their lists.

    None: there are none.
    """
    if any(ENDING.fullmatch(str(name).lower()) for name in columns):
        return ()
    names = [str(name) for name in columns if _CHOICE.fullmatch(str(name).lower())]
    texts = [name for name in names if all(isinstance(text, str) for text in columns[name])]
    if len(texts) > 1:
        return tuple(sorted(texts))
    name = known(_ENDINGS, columns)
    values = columns[name] if name is not None else ()
    if any(isinstance(value, dict) for value in values):
        raise UserError(
            f"{path}: {str(name)!r} has objects: write the endings as a list of texts, and the"
            " number of the right one, from 0, as label."
        )
    are_lists = all(isinstance(value, list) and len(value) > 1 for value in values)
    return (str(name),) if values and are_lists else None


def _of_choices(columns: Mapping[Any, list[Any]], endings: tuple[str, ...]) -> Detection:
    context = known(_CONTEXTS, columns)
    start = known([name for name in ("sent2", "text_b", "question") if name != context], columns)
    fields = {
        "task.text_a": context or "",
        "task.text_b": start or "",
        "task.label": known(("label", "answer", "gold", "answerkey"), columns) or "label",
        "task.endings": endings,
    }
    shown = f"contexts ({context}{f', {start}' if start else ''}) and their endings"
    return Detection("multiple_choice", shown, fields)


def _of_embeddings(
    path: str,
    columns: Mapping[Any, list[Any]],
    given: Mapping[str, Any],
    pair: tuple[Any, Any] | None,
) -> Detection:
    """Returns the detection of pairs of texts to embed; `pair` are their columns, if known."""
    if pair is None or "task.text_a" in given:
        pair = find_texts(path, columns, given)
    names = list(map(str, pair))
    if not names[1]:
        raise UserError(
            f"{path} has no pairs of texts among {listed(columns)}: name their columns with"
            " task.text_a and task.text_b."
        )
    fields: dict[str, Any] = {"task.text_a": names[0], "task.text_b": names[1]}
    if (id := known(IDS[:-1], columns)) and "task.id" not in given:
        fields["task.id"] = id
    label = given.get("task.label") or known(_SCORES, columns)
    if label and _are_numbers(columns.get(parse_column(str(label)), [""])):
        fields |= {"task.label": str(label), "task.loss": "cosent"}
        fields["metrics"] = ("spearman", "pearson")
        what = f"pairs of texts ({names[0]}, {names[1]}) and their scores ({label})"
        return Detection("embedding", what, fields)
    if negative := known(_NEGATIVES, columns):
        fields["task.negative"] = str(negative)
        names.append(str(negative))
    return Detection("embedding", f"texts to embed ({', '.join(names)})", fields)


def _are_numbers(values: Sequence[Any]) -> bool:
    texts = [str(value).strip() for value in values if not is_missing_label(value, True)]
    return len(texts) > 0 and all(map(is_number, texts))
