"""From logits of windows to answers and their scores, by hand."""

import json
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.examples import Question
from bert_jax.text.tokenizers import load_tokenizer

HEAD = {
    "doc_stride": 3,
    "max_query_length": 4,
    "max_answer_length": 3,
    "n_best": 5,
    "null_answers": True,
    "null_threshold": 0.0,
}
WORDS = "one two three four five six seven eight".split()
CONTEXT = " ".join(WORDS)
GOLD = [
    Question("x", "q0", "who", CONTEXT, (("three four", CONTEXT.index("three")),)),
    Question("x", "q1", "who", CONTEXT, (), is_impossible=True),
]


def make(metrics=("f1", "exact"), **head):
    values = {"max_length": 9, "metrics": metrics, "checkpoint.best_metric": "loss"}
    values |= {f"task.{name}": value for name, value in (HEAD | head).items()}
    return default_config("span").replace(values).task


@pytest.fixture
def rows(tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt"), True)
    return make().encode(GOLD, tokenizer, Counter())


def predict(data, rows, places, null):
    """Logits of 5 for the start and end of (question, first word, last word), `null` at [CLS]."""
    start, end = np.zeros((2, rows.num_rows, 9), np.float32)
    for question, first, last in places:
        for window in rows.windows(question):
            spans = [CONTEXT[a:b] for a, b in window.spans]
            for logits, word in (start, first), (end, last):
                if word in spans:
                    logits[window.row, window.first + spans.index(word)] = 5
    for question, value in enumerate(null):
        for window in rows.windows(question):
            start[window.row, 0] = end[window.row, 0] = value
    answers = [{"start": first, "end": last} for first, last in zip(start, end, strict=True)]
    return data.collect(GOLD, rows, answers)


def test_the_best_span_over_all_windows_or_no_answer(rows):
    assert rows.num_rows > len(GOLD)
    found = predict(make(), rows, [(0, "three", "four"), (1, "two", "two")], null=(1, 6))
    assert [p["answer"] for p in found] == ["three four", ""]
    assert [p["null_odds"] for p in found] == pytest.approx([2 - 10, 12 - 10])
    best = found[0]["n_best"][0]
    assert (best["text"], best["score"]) == ("three four", 10)
    assert CONTEXT[best["start"] : best["end"]] == "three four"
    json.dumps(found)
    scores = make().score(GOLD, found)
    assert scores["f1"] == scores["exact"] == 100
    assert list(scores)[:2] == ["f1", "exact"]
    assert make().baseline(GOLD) == 50


def test_a_threshold_makes_null_answers_rarer(rows):
    found = predict(
        make(null_threshold=3.0), rows, [(0, "three", "four"), (1, "two", "two")], (1, 6)
    )
    assert [p["answer"] for p in found] == ["three four", "two"]
    assert make(null_threshold=3.0).score(GOLD, found)["exact"] == 50
    # The best one is searched whatever the threshold is.
    assert make(null_threshold=3.0).score(GOLD, found)["best_exact"] == 100


def test_without_null_answers_there_is_always_an_answer(rows):
    data = make(("f1", "exact_match"), null_answers=False)
    found = predict(data, rows, [(0, "three", "six"), (1, "two", "two")], null=(9, 9))
    assert all(p["answer"] for p in found)
    assert all(len(p["answer"].split()) <= 3 for p in found)  # the longest there may be
    assert set(data.score(GOLD[:1], found[:1])) == {"f1", "exact_match"}
    with pytest.raises(ValueError, match="'best_f1' is none of f1, exact_match, the metrics for"):
        make(("best_f1",), null_answers=False)
    assert data.baseline(GOLD) == 0


@pytest.mark.parametrize("answers", [[], [{"text": "cat", "answer_start": 0}]])
def test_a_file_without_answers_needs_null_answers(tmp_path, answers):
    question = {"id": "q", "question": "who", "answers": answers}
    data = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [question]}]}]}
    (tmp_path / "x.json").write_text(json.dumps(data))

    def read(labelled=True, **head):
        data = make(("f1",), **head)
        return list(data.read(str(tmp_path / "x.json"), Counter(), labelled))

    with pytest.raises(ValueError, match=r"x.json has no question with an answer that is in its"):
        read(null_answers=False)
    assert len(read()) == len(read(labelled=False, null_answers=False)) == 1
