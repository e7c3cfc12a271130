"""Questions from all forms of files, and answers that are not at their offsets."""

import json

import pytest

from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.questions import read_questions

CONTEXT = "The Normans were the people who gave their name to Normandy."


def squad(answers, context=CONTEXT, id="q", **fields):
    row = {"id": id, "question": "Who?"} | fields
    row |= {} if answers is None else {"answers": answers}
    return {"data": [{"title": "Normans", "paragraphs": [{"context": context, "qas": [row]}]}]}


def answer(text, start):
    return {"text": text, "answer_start": start}


@pytest.fixture
def read(read_file):
    def read(content, labelled=True, indent=None, name="f.json"):
        content = content if isinstance(content, str) else json.dumps(content, indent=indent)
        return read_file(read_questions, content, name, labelled=labelled)

    return read


NORMANS = (("The Normans", 0), ("Normans", 4))


@pytest.mark.parametrize("indent", [None, 1])
def test_squad_1(read, tmp_path, indent):
    questions, counts = read(squad([answer(*a) for a in NORMANS]), indent=indent)
    where = f"{tmp_path}/f.json, question q"
    assert questions == [Question(where, "q", "Who?", CONTEXT, NORMANS, False, "Normans")]
    assert not counts


def test_squad_2(read):
    plausible = [answer("Normandy", 51)]
    (question,), counts = read(squad([], is_impossible=True, plausible_answers=plausible))
    assert question.is_impossible and question.answers == () and not counts
    (question,), counts = read(squad([answer("Normandy", 51)], is_impossible=False))
    assert question.answers == (("Normandy", 51),) and not question.is_impossible


def test_no_answer_is_impossible_as_for_the_official_script(read):
    for fields in ({}, {"is_impossible": False}):
        (question,), counts = read(squad([], **fields))
        assert question.is_impossible and counts == {"taken_as_impossible": 1}
    (question,), counts = read(squad([answer(" ", 0)]))
    assert question.is_impossible
    assert counts == {"taken_as_impossible": 1, "empty_answers": 1}


def test_test_files_have_no_answers(read):
    for answers in (None, [answer("wrong", 3)]):
        (question,), counts = read(squad(answers), labelled=False)
        assert question.answers == () and not question.is_impossible and not counts


@pytest.mark.parametrize(
    "text, start, expected, counted",
    [
        ("Normandy", 49, ("Normandy", 51), "answers_moved"),
        ("Normandy", 0, ("Normandy", 51), "answers_moved"),
        ("the", 1, ("the", 17), "answers_moved"),
        ("the", 20, ("the", -1), "answers_not_found"),
        ("William", 4, ("William", -1), "answers_not_found"),
        ("normandy", 51, ("normandy", -1), "answers_not_found"),
        ("the", -1, ("the", 17), "answers_placed"),
        (" Normans ", 3, ("Normans", 4), "answers_stripped"),
    ],
)
def test_answers_elsewhere(read, text, start, expected, counted):
    # "the" is at 17 and in "their", at 37.
    (question,), counts = read(squad([answer(text, start)]))
    assert question.answers == (expected,) and counts[counted] == 1
    assert counts["questions_not_found"] == (expected[1] < 0)
    if expected[1] >= 0:
        assert CONTEXT.startswith(expected[0], expected[1])


def test_a_question_with_one_answer_found_is_found(read):
    (question,), counts = read(squad([answer("William", 4), answer("Normans", 4)]))
    assert question.answers == (("William", -1), ("Normans", 4))
    assert counts == {"answers_not_found": 1}


def test_the_trial_form_of_cmrc(read):
    context = "\u8303\u5ef7\u9882\u662f\u4e2d\u56fd\u4eba\uff0c\u4e2d\u56fd\u4eba\u3002"
    row = {"query_id": "T_1", "query_text": "\u4ec0\u4e48\uff1f"}
    row["answers"] = ["\u4e2d\u56fd", "\u65e0"]
    article = {"context_id": "T", "context_text": context, "qas": [row], "title": "\u8303"}
    (question,), counts = read([article], indent=1)
    assert (question.id, question.context, question.document) == ("T_1", context, "\u8303")
    assert question.answers == (("\u4e2d\u56fd", 4), ("\u65e0", -1))
    assert counts == {"answers_placed": 1, "answers_not_found": 1}


FLAT = {"question": "Who?", "context": CONTEXT}


@pytest.mark.parametrize(
    "answers", [[answer("Normans", 4)], ["Normans"], {"text": ["Normans"], "answer_start": [4]}]
)
def test_an_object_a_line(read, tmp_path, answers):
    rows = [FLAT | {"answers": answers}, FLAT | {"answers": answers, "id": "own"}]
    for content in ("\n".join(map(json.dumps, rows)), json.dumps(rows)):
        questions, _ = read(content)
        assert [q.id for q in questions] == ["0", "own"]
        assert all(q.answers == (("Normans", 4),) for q in questions)
    questions, _ = read("\n".join(map(json.dumps, rows)), labelled=False)
    assert questions[1].where == f"{tmp_path}/f.json, line 2"


def twice(file):
    paragraph = file["data"][0]["paragraphs"][0]
    paragraph["qas"] *= 2
    return file


@pytest.mark.parametrize(
    "file, message",
    [
        ('{"data": [', "f.json: invalid JSON"),
        ("[" * 100_000, "f.json: invalid JSON"),
        ({"data": []}, "has no questions"),
        ({"version": "1.1"}, r"no column 'data' .*; it has 'version'"),
        ({"data": [{"title": "x"}]}, "article 1, paragraph 1: no column 'qas'"),
        ({"data": [5]}, "article 1: a JSON int instead of an object"),
        ({"data": 5}, "'data' is not a list but int"),
        (twice(squad([answer("Normans", 4)])), "question q: another question has the same id"),
        ([FLAT | {"answers": [], "id": "1"}, FLAT | {"answers": []}], "has the same id, 1"),
        (squad(None), r"question q: no column 'answers' \(the answers\); it has 'id', 'question'"),
        (squad([answer("Normans", 4)], is_impossible=True), "is_impossible, and has the answer"),
        (squad([answer("Normans", "4")]), "offset '4' of an answer is not an integer"),
        (squad([answer(4, 4)]), "an answer is a JSON int"),
        (squad({"text": ["a"], "answer_start": []}), "1 answers with 0 offsets"),
        (squad([], question=None), "'question' .* is a JSON NoneType"),
    ],
)
def test_errors(read, file, message):
    with pytest.raises(ValueError, match=message):
        read(file)
