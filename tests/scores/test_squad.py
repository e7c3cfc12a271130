"""SQuAD's scores against the output of the official scripts, and rule by rule."""

import json
import pathlib
import random

import pytest

from bert_jax.scores import squad as squad_scores
from bert_jax.scores.squad import squad_v1, squad_v2

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent / "goldens" / "squad_metrics.json").read_text(encoding="utf-8")
)


def gold_of(data: dict) -> dict[str, list[str]]:
    questions = data["data"][0]["paragraphs"][0]["qas"]
    return {each["id"]: [answer["text"] for answer in each["answers"]] for each in questions}


def test_squad_1_is_the_official_scripts():
    golden = GOLDEN["squad_v1"]  # with questions that have no prediction
    assert len(golden["predictions"]) != len(gold_of(golden["data"]))
    scores = squad_v1(gold_of(golden["data"]), golden["predictions"])
    assert scores == pytest.approx(golden["scores"], rel=1e-14)


def test_squad_2_is_the_official_scripts():
    golden = GOLDEN["squad_v2"]
    gold, predictions, na_probs = (
        gold_of(golden["data"]),
        golden["predictions"],
        golden["na_probs"],
    )
    assert squad_v2(gold, predictions) == pytest.approx(golden["scores"], rel=1e-14)
    expected = golden["scores_with_na_probs"]
    assert expected["best_exact_thresh"] != expected["best_f1_thresh"]
    assert squad_v2(gold, predictions, na_probs) == pytest.approx(expected, rel=1e-14)
    for threshold, expected in golden["scores_with_threshold"].items():
        scores = squad_v2(gold, predictions, na_probs, float(threshold))
        assert scores == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    "answer, predicted, are_equal",
    [
        ("Normans", "the normans", True),  # articles and case
        ("U.S.", "us", True),  # punctuation is removed without a replacement
        (" two\twords\u00a0\n", "two words", True),  # white space of every kind
        ("!", "...", True),
        ("another", "other", False),  # an article is a word
        ("caf\u00e9", "cafe", False),  # accents stay
        ("\u201cso\u201d", "so", False),  # and punctuation outside ASCII
        ("state of the art", "state-of-the-art", False),
    ],
)
def test_texts_are_equal_once_they_are_normalized(answer, predicted, are_equal):
    assert squad_scores.exact(answer, predicted) == are_equal


@pytest.mark.parametrize(
    "answer, predicted, expected",
    [
        ("red green blue", "green red", 0.8),  # precision 1, recall 2/3, any order
        ("ha ha ha", "ha ha", 0.8),  # words count as often as they are there
        ("ha", "ha ha ha ha", 0.4),  # precision 1/4, recall 1
        ("the cat", "a cat", 1),
        ("red", "blue", 0),
        ("red", "", 0),
        ("", "red", 0),
    ],
)
def test_f1_by_hand(answer, predicted, expected):
    assert squad_scores.f1(answer, predicted) == pytest.approx(expected)


def test_texts_without_a_word_are_equal_but_have_an_f1_in_squad_2_only():
    assert squad_v1({"q": ["The"]}, {"q": "the"}) == {"exact_match": 100, "f1": 0}
    scores = squad_v2({"q": ["The"]}, {"q": ""})
    assert (scores["HasAns_exact"], scores["HasAns_f1"]) == (100, 100)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_is_the_best_of_all_and_gives_its_score(seed):
    rng = random.Random(seed)
    keys = [f"q{i}" for i in range(12)]
    gold = {key: ["red green"] if rng.random() < 0.6 else [] for key in keys}
    predictions = {key: rng.choice(["red green", "red", "blue"]) for key in keys}
    na_probs = {key: rng.gauss(0, 3) for key in keys}  # all different
    result = squad_v2(gold, predictions, na_probs)
    nothing, everything = min(na_probs.values()) - 1, max(na_probs.values()) + 1
    for name in ("exact", "f1"):
        tried = {
            threshold: squad_v2(gold, predictions, na_probs, threshold)[name]
            for threshold in (nothing, *na_probs.values(), everything)
        }
        best = result[f"best_{name}"]
        assert best == pytest.approx(max(tried.values()))
        threshold = result[f"best_{name}_thresh"]
        assert tried.get(threshold, tried[nothing]) == pytest.approx(best)


def test_a_question_without_a_prediction_scores_zero_in_all():
    gold = {"a": ["yes"], "b": ["yes"], "none": [], "none too": []}
    predictions, na_probs = {"a": "yes", "none": ""}, {"a": 0.1, "none": 0.9, "none too": 0.9}
    assert squad_v1({"a": ["yes"], "b": ["yes"]}, predictions) == {"exact_match": 50, "f1": 50}
    scores = squad_v2(gold, predictions, na_probs)
    assert (scores["exact"], scores["HasAns_exact"], scores["NoAns_exact"]) == (50, 50, 50)
    assert (scores["best_exact"], scores["total"]) == (50, 4)


def test_what_cannot_be_scored_is_refused():
    for score in (squad_v1, squad_v2):
        with pytest.raises(ValueError, match="There are no questions to score"):
            score({}, {})
    with pytest.raises(ValueError, match="'q' has no answer: use the rules of SQuAD 2.0"):
        squad_v1({"q": []}, {"q": ""})
    with pytest.raises(ValueError, match="1 of 2 predictions have no na_prob, .* 'b'"):
        squad_v2({"a": ["x"], "b": ["x"]}, {"a": "x", "b": "x"}, {"a": 0.5})
