"""The choice of answers, against a slow program that tries every span of every window."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.encode_questions import encode_questions
from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.spans import Answers, Span, choose_spans
from tests.data.labelled.letters import TOKENIZER


def windows_of(context, length=16, stride=4):
    question = Question("", "", "h", context)
    return encode_questions([question], TOKENIZER, length, stride, 64, Counter()).windows(0)


def logits_of(windows, length, seed):
    """float[windows, 2, length], some of them equal to others."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 3, (len(windows), 2, length)).round(1).astype(np.float32)


def slow(context, windows, logits, max_answer_length, n_best):
    """Every span, the best first; of those with the same text the first."""
    spans = []
    for window, (start_logits, end_logits) in zip(windows, logits.tolist(), strict=True):
        for i, (start, _) in enumerate(window.spans.tolist()):
            for j, (_, stop) in enumerate(window.spans.tolist()):
                if window.is_max_context[i] and i <= j < i + max_answer_length:
                    score = start_logits[window.first + i] + end_logits[window.first + j]
                    spans.append((score, context[start:stop]))
    best = {}
    for score, text in sorted(spans, key=lambda span: -span[0]):
        best.setdefault(text, score)
    return list(best.items())[:n_best], min(start[0] + end[0] for start, end in logits.tolist())


@pytest.mark.parametrize("seed", range(8))
def test_the_answers_are_those_of_the_slow_program(seed):
    rng = random.Random(seed)
    words = [
        rng.choice("abcdefgh") + "x" * rng.choice([0, 0, 2]) for _ in range(rng.randint(1, 40))
    ]
    context = "  ".join(words)
    windows = windows_of(context, rng.choice([8, 12, 16]), rng.randint(1, 6))
    logits = logits_of(windows, 16, seed)
    max_answer_length, n_best = rng.choice([1, 3, 8, 100]), rng.choice([1, 5, 20, 10_000])
    answers = choose_spans(context, windows, logits[:, 0], logits[:, 1], max_answer_length, n_best)
    expected, null_score = slow(context, windows, logits, max_answer_length, n_best)
    assert {span.text for span in answers.spans} == {text for text, _ in expected} or n_best < 99
    np.testing.assert_allclose(
        [span.score for span in answers.spans], [score for _, score in expected], rtol=1e-6
    )
    for span in answers.spans:
        assert span.text == context[span.start : span.stop]
    assert answers.null_score == pytest.approx(null_score)
    assert answers.null_odds == pytest.approx(null_score - expected[0][1])


def test_an_accent_of_its_own_belongs_to_the_letter_before():
    context, (start, end) = "a e\u0301 b", np.zeros((2, 16))
    start[4] = end[4] = 5
    answers = choose_spans(context, windows_of(context), [start], [end], 30, 1)
    assert answers.spans[0].text == "e\u0301"


def test_what_is_not_context_is_no_answer():
    (window,) = windows_of("a b c")
    start, end = np.full((2, 16), -5.0)
    start[[0, 1, 2, 9]] = end[[0, 1, 2, 6, 9]] = 100  # specials, question, padding
    start[4], end[5] = 1, 2
    answers = choose_spans("a b c", [window], [start], [end], 30, 20)
    assert (answers.spans[0].text, answers.spans[0].start, answers.spans[0].stop) == ("b c", 2, 5)
    assert answers.spans[0].score == 3 and answers.null_score == 200 and answers.null_odds == 197


def test_no_answer_at_all_is_no_crash():
    for context in ("", "\u200b"):
        (window,) = windows_of(context)
        answers = choose_spans(context, [window], [np.ones(16)], [np.ones(16)], 30, 20)
        assert answers.spans == () and answers.text() == answers.text(0.0) == ""
        assert answers.null_odds == math.inf
        assert answers.n_best(with_null=False) == [("", 1.0, 2.0, None)]


def test_there_is_no_answer_only_if_no_window_has_one():
    windows = windows_of("a b c d e f g a b c d e", length=10)
    logits = np.zeros((len(windows), 2, 16))
    logits[:, :, 0] = [[9, 9], [-2, -3], *[[9, 9]] * (len(windows) - 2)]
    answers = choose_spans("a b c d e f g a b c d e", windows, logits[:, 0], logits[:, 1], 30, 1)
    assert answers.null_score == -5


def test_probabilities_are_a_softmax_with_or_without_no_answer():
    spans = (Span("a", 0, 1, 2.0), Span("b", 2, 3, -1.0))
    answers = Answers(spans, null_score=0.5)
    found = answers.n_best(with_null=True)
    assert [text for text, *_ in found] == ["a", "", "b"]
    total = math.exp(2) + math.exp(0.5) + math.exp(-1)
    assert [p for _, p, _, _ in found] == (
        pytest.approx([math.exp(2) / total, math.exp(0.5) / total, math.exp(-1) / total])
    )
    assert [where for *_, where in found] == [spans[0], None, spans[1]]
    without = answers.n_best(with_null=False)
    assert [p for _, p, _, _ in without] == pytest.approx(
        [1 / (1 + math.exp(-3)), 1 / (1 + math.exp(3))]
    )
    assert answers.text(-1.5) == "a" and answers.text(-1.6) == ""
