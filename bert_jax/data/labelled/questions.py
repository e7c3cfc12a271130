"""Reads questions about texts: SQuAD 1.1 and 2.0, CMRC 2018 in its two forms, JSON lines.

    {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}
    [{"title", "context_id", "context_text", "qas": [{"query_id", "query_text", "answers"}]}]
    [{"context", "qas": [{"id", "question", "answers"}]}]    or one such object per line
    {"question", "context", "answers"}    one object per line, an array of them, or a table's row

`answers` are [{"text", "answer_start"}], or texts only, or {"text": [...], "answer_start": [...]};
instead, `answer` (or `answer_text`) may hold the only one, and `answer_start` its offset.
Offsets, in characters of the context, may be wrong in published files; the released program leaves
such questions out of training. Here the answer is searched for, and counted:

    answers_moved        not at the offset, but once in the context or once within 32 characters:
                         moved to that place
    answers_placed       no offset (or -1): placed at the first occurrence in the context
    answers_stripped     white space around the answer: dropped
    answers_not_found    all others: kept for the score, with offset -1, and not trained on
    questions_not_found  questions without any answer in the context
    empty_answers        answers without text: dropped
    taken_as_impossible  questions without answers that are not marked as impossible
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from bert_jax.data.labelled.cells import is_missing, truth
from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.reading import (
    ending_of,
    field,
    has_objects,
    read_json,
    read_objects,
    text,
    text_field,
)
from bert_jax.data.labelled.table_rows import read_rows
from bert_jax.files.errors import UserError

_NEAR = 32
# Names of the only answer of a question, and of its offset.
_ANSWER, _START = ("answer", "answer_text"), ("answer_start", "start")
# Besides its text and context, a question has one of these fields.
_ANSWERS = {"answers", *_ANSWER, "is_impossible"}


def read_questions(path: str, counts: Counter, labelled: bool = True) -> Iterator[Question]:
    """Yields the questions of a file, in its order. Only JSON lines are streamed; ids are kept.

    Args:
      path: a file.
      counts: counts of the list above.
      labelled: whether answers are read; every question must have them then. A question with an
        empty list of them is impossible, as in the official script.

    Raises:
      UserError: naming the question, for a malformed one or a repeated id; or there are none.
    """
    seen = set()
    for question in _questions(path, counts, labelled):
        if question.id in seen:
            raise UserError(f"{question.where}: another question has the same id, {question.id}.")
        seen.add(question.id)
        yield question
    if not seen:
        raise UserError(f"{path} has no questions.")


def _questions(path: str, counts: Counter, labelled: bool) -> Iterator[Question]:
    if _is_flat(path):
        for number, (where, row) in enumerate(read_rows(path, counts)):
            id = str(row.get("id", number))
            yield _question(where, id, "question", row, row, counts, labelled)
        return
    if _first(path).keys() & {"qas", "paragraphs"}:
        articles = [row for _, row in read_objects(path, counts)]
    else:
        file = read_json(path, counts)
        articles = file if isinstance(file, list) else _list(file, "data", path)
    for a, article in enumerate(articles):
        at = f"{path}, article {a + 1}"
        title = str(_object(article, at).get("title", ""))
        paragraphs = _list(article, "paragraphs", at) if "paragraphs" in article else [article]
        for p, paragraph in enumerate(paragraphs):
            at = f"{path}, article {a + 1}, paragraph {p + 1}"
            for row in _list(_object(paragraph, at), "qas", at):
                is_old = "query_id" in _object(row, at)
                id = str(field(row, "query_id" if is_old else "id", "its id", at))
                where = f"{path}, question {id}"
                name = "query_text" if is_old else "question"
                yield _question(where, id, name, row, paragraph, counts, labelled, title)


def _is_flat(path: str) -> bool:
    """Returns whether each object or row of a file is a question."""
    is_table = not has_objects(path) and ending_of(path) in (".csv", ".tsv", ".txt")
    return is_table or "question" in _first(path)


def _first(path: str) -> dict[str, Any]:
    """Returns the first object of a file; {} if it has one over many lines."""
    try:
        return next(read_objects(path, Counter()), ("", {}))[1]
    except UserError:
        return {}


def is_question_table(columns: Collection[str]) -> bool:
    """Returns whether rows with these columns or fields are questions."""
    return {"question", "context"} <= set(columns) and not _ANSWERS.isdisjoint(columns)


def _question(
    where: str,
    id: str,
    name: str,
    row: dict[str, Any],
    paragraph: dict[str, Any],
    counts: Counter,
    labelled: bool,
    title: str = "",
) -> Question:
    question = text_field(row, name, "the question", where)
    context_name = "context_text" if "context_text" in paragraph else "context"
    context = text_field(paragraph, context_name, "the text", where)
    if not labelled:
        return Question(where, id, question, context, document=title)
    given = _answers(row, where)
    answers = tuple(_placed(*answer, context, counts) for answer in given if answer[0].strip())
    if answers and _is_true(row.get("is_impossible")):
        raise UserError(f"{where}: is_impossible, and has the answer {answers[0][0]!r}.")
    counts["empty_answers"] += len(given) - len(answers)
    counts["taken_as_impossible"] += not answers and not _is_true(row.get("is_impossible"))
    counts["questions_not_found"] += bool(answers) and all(at < 0 for _, at in answers)
    return Question(where, id, question, context, answers, not answers, title)


def _answers(row: dict[str, Any], where: str) -> list[tuple[str, int]]:
    """Returns (text, offset) of each answer in the file; the offset is -1 if it has none."""
    if "answers" not in row:
        return [] if _is_true(row.get("is_impossible")) else _only_answer(row, where)
    given = field(row, "answers", "the answers", where)
    if isinstance(given, dict):
        texts, starts = (_list(given, name, where) for name in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise UserError(f"{where}: {len(texts)} answers with {len(starts)} offsets.")
        given = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    if not isinstance(given, list):
        python = ", of Python's values: write JSON lines" if str(given).startswith("{") else ""
        raise UserError(f"{where}: 'answers' is not a list but {type(given).__name__}{python}.")
    answers = []
    for answer in given:
        start = -1
        if isinstance(answer, dict):
            start = answer.get("answer_start", -1)
            answer = field(answer, "text", "the answer", where)
        if not isinstance(start, int):
            raise UserError(f"{where}: the offset {start!r} of an answer is not an integer.")
        answers.append((text(answer, "an answer", where), start))
    return answers


def _only_answer(row: dict[str, Any], where: str) -> list[tuple[str, int]]:
    """Returns (text, offset) of the answer in a field of its own; [] if it is empty."""
    name = next((name for name in _ANSWER if name in row), "answers")
    if is_missing(answer := field(row, name, "the answers", where)):
        return []
    start = next((row[name] for name in _START if name in row), None)
    written = "-1" if is_missing(start) else str(start).strip().removesuffix(".0")
    if not written.removeprefix("-").isdecimal():
        raise UserError(f"{where}: the offset {start!r} of an answer is not an integer.")
    return [(text(answer, "the answer", where), int(written))]


def _is_true(value: Any) -> bool:
    return bool(truth(value)) if isinstance(value, str) else bool(value)


def _placed(answer: str, start: int, context: str, counts: Counter) -> tuple[str, int]:
    """Returns the answer, and its offset in the context or -1."""
    if start >= 0 and context.startswith(answer, start):
        # White space around it is in no word, and no metric counts it.
        stripped = answer.strip()
        counts["answers_stripped"] += stripped != answer
        return stripped, start + len(answer) - len(answer.lstrip())
    counts["answers_stripped"] += answer.strip() != answer
    answer = answer.strip()
    # Lookahead: occurrences may overlap.
    places = [match.start() for match in re.finditer(f"(?={re.escape(answer)})", context)]
    near = [place for place in places if abs(place - start) <= _NEAR]
    if start < 0 and places:
        counts["answers_placed"] += 1
        return answer, places[0]
    for candidates in (places, near):
        if len(candidates) == 1:
            counts["answers_moved"] += 1
            return answer, candidates[0]
    counts["answers_not_found"] += 1
    return answer, -1


def _list(value: Any, name: str, where: str) -> list[Any]:
    items = field(_object(value, where), name, "of SQuAD's form", where)
    if not isinstance(items, list):
        raise UserError(f"{where}: {name!r} is not a list but {type(items).__name__}.")
    return items


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: a JSON {type(value).__name__} instead of an object.")
    return value
