"""Finds out what a file of labelled examples is for: its task, columns, and kind of labels.

    JSON with question and context, or SQuAD's nesting      span
    JSON with a list of words and a list of tags            tagging
    JSON with a text and its entities as characters         tagging
    a word and its tag per line, blank lines between        tagging
    columns or fields ending0, ending1, ..., or endings     multiple_choice
    columns or fields anchor and positive                   embedding
    two columns query and document, question and answer     embedding
    any other table                                         classification

The columns of a table are known by their usual names, or else by their content;
bert_jax.data.labelled.forms.label_kinds has the kinds of labels.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from bert_jax.data.labelled.cells import is_missing_label, is_number
from bert_jax.data.labelled.choices import ENDING
from bert_jax.data.labelled.forms import refused
from bert_jax.data.labelled.forms.columns import find_label, find_texts
from bert_jax.data.labelled.forms.label_kinds import PROBLEM_TYPES, find_kind
from bert_jax.data.labelled.forms.table import (
    POSITIVES,
    Detection,
    Table,
    is_header,
    known,
    listed,
)
from bert_jax.data.labelled.forms.word_files import detect_columns, detect_words
from bert_jax.data.labelled.questions import is_question_table, read_questions
from bert_jax.data.labelled.reading import has_objects, is_object, read_json, read_objects
from bert_jax.data.labelled.table_rows import Row, form_of, read_rows
from bert_jax.data.labelled.tables import parse_column
from bert_jax.files.errors import UserError
from bert_jax.text.files import refuse_spreadsheet

# Pairs of texts to embed where a table has no column that could be a label of the pairs; and the
# names of a third text and of scores.
_ANSWERS = tuple(
    (first, second)
    for first in ("query", "question")
    for second in ("document", "passage", "answer")
)
_NEGATIVES = ("negative", "hard_negative")
_SCORES = ("score", "similarity", "similarity_score", "label", "rating")
# Names of columns with 1 for pairs that belong together and 0 for others.
_SAME = ("is_duplicate", "duplicate", "relevance", "relevant", "target", "labels", "class")
_CHOICE = re.compile(r"(choice|option|sol|solution|answer)_?(\d|[a-e])")
_ENDINGS = ("endings", "options", "choices")
_CONTEXTS = (
    *("sent1", "context", "ctx", "article", "passage", "premise", "goal", "question", "text_a"),
    *("text", "sentence"),
)
# Rows that are read to find out whether a table has a header.
_MAX_ROWS = 1000

# Tasks on pairs of texts that belong together.
_PAIRS = ("embedding", "splade", "colbert", "cross_encoder")
# Tasks whose pairs may have scores -> fields that are then set.
_SCORED: dict[str, dict[str, Any]] = {"embedding": {"task.loss": "cosent"}, "cross_encoder": {}}
# Fields for questions without an answer, as in SQuAD 2.0.
_NULL_ANSWERS = {
    "task.null_answers": True,
    "metrics": ("f1", "exact", "best_f1", "best_exact"),
}
TASKS = (*PROBLEM_TYPES, "tagging", "span", "multiple_choice", *_PAIRS)


def detect(path: str, given: Mapping[str, Any], task: str = "") -> Detection:
    """Returns what a file is for.

    Args:
      path: the file to train on.
      given: fields that the user set, by dotted name; they are not detected.
      task: one of TASKS; "": any.

    Raises:
      UserError: the file cannot be read, or has none of the forms above; the message says which
        field decides.
    """
    if task and task not in TASKS:
        raise UserError(f"Unknown task {task!r}. Available: {', '.join(TASKS)}.")
    refuse_spreadsheet(path)
    found = None
    if has_objects(path):
        if isinstance(value := _first_object(path), Mapping):
            refused.refuse(path, refused.of_object(value))
            found = _of_object(path, value, given)
    else:
        refused.refuse(path, refused.of_lines(path))
        found = detect_columns(path)
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


def _of_object(path: str, value: Mapping[str, Any], given: Mapping[str, Any]) -> Detection | None:
    """Returns the detection of JSON that has questions with their contexts."""
    if isinstance(value.get("data"), list):
        return _of_questions(path, "questions in SQuAD's form", given)
    if "qas" in value and {"context", "context_text"} & value.keys():
        return _of_questions(path, "contexts with questions (qas)", given)
    return None


def _of_questions(path: str, what: str, given: Mapping[str, Any]) -> Detection:
    """Returns the detection of questions; some may be marked as having no answer."""
    if "task.null_answers" not in given:
        with contextlib.suppress(UserError):  # whoever reads the file reports it
            if any(question.is_impossible for question in read_questions(path, Counter())):
                return Detection("span", f"{what}, some without an answer", _NULL_ANSWERS)
    return Detection("span", what)


def _of_table(path: str, given: Mapping[str, Any], task: str) -> Detection:
    rows, has_header = _read(path, given)
    table = Table.of(path, rows, given)
    columns = table.columns
    refused.refuse(path, refused.of_table(table))
    if task in ("", "multiple_choice") and (found := _of_choices(table)):
        return found
    if task in ("", "span") and "task.label" not in given and is_question_table(columns):
        return _of_questions(path, "questions, their contexts and answers", given)
    if task in ("", "tagging") and "task.problem_type" not in given:
        if found := detect_words(table):
            return found
    if len(columns) < 2:
        how = ": in Python, (texts, labels) is one argument"
        if form_of(path) != "json":
            how = ", in columns separated by commas, semicolons, tabs or | (.csv) or by tabs"
        raise UserError(
            f"{path} has one column, {listed(columns)[:60]}: labelled examples have a text and a"
            f" label{how}."
        )
    texts = [name for name in columns if str(name).strip().lower() not in _NEGATIVES]
    pair = table.pair(POSITIVES) or (table.pair(_ANSWERS) if len(texts) == 2 else None)
    if task in _PAIRS or (pair and not task and "task.text_a" not in given):
        return _of_embeddings(table, pair, task or "embedding")
    return _of_texts(table, task, has_header)


def _read(path: str, given: Mapping[str, Any]) -> tuple[list[Row], bool]:
    """Returns the rows of a table, and whether it has a header."""
    has_header = not isinstance(parse_column(str(given.get("task.text_a", ""))), int)
    if has_header and form_of(path) != "json":
        first = islice(read_rows(path, Counter(), False, leave_out_broken_rows=True), _MAX_ROWS)
        cells = [list(row.values()) for _, row in first]
        has_header = bool(given.get("task.text_a")) or is_header(cells)
    rows = [row for _, row in read_rows(path, Counter(), has_header)]
    if not any(rows):
        raise UserError(f"{path} has no examples.")
    return rows, has_header


def _of_texts(table: Table, task: str, has_header: bool) -> Detection:
    text_a, text_b = find_texts(table)
    kinds = {kind: name for name, kind in PROBLEM_TYPES.items()}
    problem = task or kinds.get(str(table.given.get("task.problem_type")), "")
    label = str(table.given.get("task.label") or find_label(table, (text_a, text_b), problem))
    texts = [str(text_a)] + [str(text_b)] * (text_b != "")
    kind = find_kind(table, label, problem)
    fields = {"task.text_a": str(text_a), "task.text_b": str(text_b), **table.id_fields()}
    fields |= {"task.label": label, "task.problem_type": PROBLEM_TYPES[kind.task], **kind.fields}
    header = "" if has_header else " (numbered from 0, there is no header)"
    used = {str(text_a), str(text_b), str(table.id), *label.split(",")}
    if others := [str(name) for name in table.columns if str(name) not in used]:
        header += f"; not used: {', '.join(map(repr, others))}"
    named = f"text{'s' if len(texts) > 1 else ''} {' and '.join(map(repr, texts))}"
    return Detection(kind.task, f"{named}, {kind.what} in {label!r}{header}", fields)


def _of_choices(table: Table) -> Detection | None:
    """Returns the detection of contexts with endings; None: there are no endings."""
    columns, endings = table.columns, ()
    if not any(ENDING.fullmatch(str(name).lower()) for name in columns):
        names = [str(name) for name in columns if _CHOICE.fullmatch(str(name).lower())]
        texts = [name for name in names if all(isinstance(text, str) for text in columns[name])]
        lists = known(_ENDINGS, columns)
        values = columns[lists] if lists is not None else ()
        if len(texts) > 1:
            endings = tuple(sorted(texts))
        elif any(isinstance(value, dict) for value in values):
            raise UserError(
                f"{table.path}: {str(lists)!r} has objects: write the endings as a list of texts,"
                " and the number of the right one, from 0, as label."
            )
        elif values and all(isinstance(value, list) and len(value) > 1 for value in values):
            endings = (str(lists),)
        else:
            return None
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


def _of_embeddings(table: Table, pair: tuple[Any, Any] | None, task: str) -> Detection:
    """Returns the detection of pairs of texts to embed; `pair` are their columns, if known."""
    if pair is None or "task.text_a" in table.given:
        pair = find_texts(table)
    names = list(map(str, pair))
    if not names[1]:
        raise UserError(
            f"{table.path} has no pairs of texts among {listed(table.columns)}: name their columns"
            " with task.text_a and task.text_b."
        )
    fields: dict[str, Any] = {"task.text_a": names[0], "task.text_b": names[1]}
    fields |= table.id_fields()
    negative = known(_NEGATIVES, table.columns)
    label = table.named("label", () if negative is not None else _SCORES)
    scores = table.columns.get(parse_column(str(label)), [""]) if label else ()
    # Equal scores have no order to learn: all pairs belong together equally.
    is_scored = _are_numbers(scores) and ("task.label" in table.given or len(set(scores)) > 1)
    if is_scored and task in _SCORED:
        fields |= {"task.label": str(label), "metrics": ("spearman", "pearson"), **_SCORED[task]}
        what = f"pairs of texts ({names[0]}, {names[1]}) and their scores ({label})"
        return Detection(task, what, fields)
    if negative is not None:
        fields["task.negative"] = str(negative)
        names.append(str(negative))
    else:
        _refuse_labels(table, [*names, str(table.id)], task)
    kind = "pairs of texts" if task == "cross_encoder" else "texts to embed"
    used = {*names, str(table.id)}
    others = [repr(name) for name in map(str, table.columns) if name not in used]
    unused = f"; not used: {', '.join(others)}" if others else ""
    return Detection(task, f"{kind} ({', '.join(names)}){unused}", fields)


def _refuse_labels(table: Table, used: Sequence[str], task: str) -> None:
    """Raises UserError for a column that says which pairs belong together, and is not read."""
    for name, values in table.columns.items():
        known_name = str(name).strip().lower() in (*_SCORES, *_SAME)
        if known_name and str(name) not in used and len(set(map(str, values))) > 1:
            fix = "keep the pairs that belong together, and remove the column"
            if task in _SCORED:
                fix += ", or write numbers into it and name it with --config.task.label"
            raise UserError(
                f"{table.path} has labels or scores in the column {str(name)!r}, which task={task}"
                f" cannot read: {fix}."
            )


def _are_numbers(values: Sequence[Any]) -> bool:
    texts = [str(value).strip() for value in values if not is_missing_label(value, True)]
    return len(texts) > 0 and all(map(is_number, texts))
