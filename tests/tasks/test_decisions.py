"""Decisions of a classification: what is fitted on an evaluation, stored, and used."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bert_jax.tasks.classification.decisions import Decision
from tests.tasks.test_classification import examples, make, predictions_of, with_labels


def fit(kind, gold, logits, metrics, **head):
    """Returns the task that was fitted, and the metrics of its evaluation."""
    data = with_labels(make(kind, metrics), gold)
    data = dataclasses.replace(data, **head)
    rows: Any = SimpleNamespace(examples=gold, rows=None, name="eval")
    answers = [{"logits": np.array(row)} for row in logits]
    data = data.fitted(rows, answers)
    return data, data.evaluate(rows, answers, {"loss": 1.0})[0]


def test_a_threshold_between_two_labels_is_used_and_the_score_without_it_reported():
    gold = examples(*[("good",)] * 8, ("bad",), ("bad",))
    shares = np.array([0.1] * 7 + [0.4] + [0.3, 0.35])  # of bad
    logits = np.log(np.stack([shares, 1 - shares], axis=1))
    data, values = fit("single", gold, logits, ("macro_f1", "accuracy"), thresholds="tuned")
    # From 0.1 to 0.3 all of bad and one of good are found.
    assert data.fitted_values() == {
        "thresholds": pytest.approx({"bad": 0.2, "good": 0.8}, abs=0.03)
    }
    assert values == pytest.approx(
        {
            "macro_f1": (14 / 15 + 4 / 5) / 2,
            "accuracy": 0.9,
            "loss": 1.0,
            "untuned_macro_f1": 8 / 18,
            "untuned_accuracy": 0.8,
        }
    )
    assert list(values)[:2] == ["macro_f1", "accuracy"]
    found = predictions_of(data, gold, logits)
    assert [p["label"] for p in found] == ["good"] * 7 + ["bad"] * 3
    assert found[-1]["probabilities"] == pytest.approx({"bad": 0.35, "good": 0.65})


def test_several_labels_have_a_threshold_each():
    gold = examples(("a",), ("a", "b"), ("b",), ())
    shares = np.array([[0.3, 0.6], [0.4, 0.9], [0.1, 0.8], [0.2, 0.7]])
    logits = np.log(shares / (1 - shares))
    data, values = fit("multi", gold, logits, ("macro_f1",), thresholds="tuned")
    expected = {"a": pytest.approx(0.25), "b": pytest.approx(0.75)}
    assert data.fitted_values() == {"thresholds": expected}
    assert (values["macro_f1"], values["untuned_macro_f1"]) == (1, pytest.approx((0 + 2 / 3) / 2))
    assert [p["labels"] for p in predictions_of(data, gold, logits)] == [
        ["a"],
        ["a", "b"],
        ["b"],
        [],
    ]


def test_a_temperature_changes_probabilities_and_no_label():
    gold = examples(*[("a",)] * 9, ("b",))
    logits = np.tile([5.0, 0.0], (10, 1))
    data, values = fit("single", gold, logits, ("accuracy",), calibration="temperature")
    temperature = 5 / np.log(9)  # nine of ten are right
    assert values == pytest.approx(
        {
            "accuracy": 0.9,
            "loss": 1.0,
            "temperature": temperature,
            "nll": -0.9 * np.log(0.9) - 0.1 * np.log(0.1),
            "ece": 0.0,
            "uncalibrated_nll": np.log1p(np.exp(-5)) + 0.5,
            "uncalibrated_ece": 1 / (1 + np.exp(-5)) - 0.9,
        }
    )
    (first, *_) = predictions_of(data, gold, logits)
    assert first["label"] == "a" and first["probabilities"] == pytest.approx({"a": 0.9, "b": 0.1})
    assert data.fitted_values() == {"temperature": pytest.approx(temperature)}


def test_the_temperature_of_several_labels_is_that_of_binary_answers():
    gold = examples(*[("a",)] * 9, ("b",))  # of 20 binary answers 18 are right
    logits = np.tile([5.0, -5.0], (10, 1))
    data, values = fit("multi", gold, logits, ("f1",), calibration="temperature")
    assert values["temperature"] == pytest.approx(5 / np.log(9))
    assert values["ece"] == pytest.approx(0) and values["uncalibrated_ece"] > 0.09
    (first, *_) = predictions_of(data, gold, logits)
    assert first["probabilities"] == pytest.approx({"a": 0.9, "b": 0.1})


def test_other_files_are_scored_with_what_was_fitted():
    gold = examples(("a",), ("a",), ("b",), ("b",))
    logits = np.array([[2.0, 0.0], [1.5, 0.0], [1.0, 0.0], [0.5, 0.0]])
    settings = {"thresholds": "tuned", "calibration": "temperature"}
    data, values = fit("single", gold, logits, ("accuracy",), **settings)
    assert (values["accuracy"], values["untuned_accuracy"]) == (1, 0.5)
    rows: Any = SimpleNamespace(examples=gold[2:], rows=None, name="test")
    answers = [{"logits": row} for row in logits[1:3]]
    scores, _ = data.evaluate(rows, answers, {"loss": 1.0})
    assert (scores["test_accuracy"], scores["test_untuned_accuracy"]) == (0.5, 0)
    assert scores["test_temperature"] == values["temperature"]


@pytest.mark.parametrize("several", [False, True])
def test_what_is_stored_gives_the_same_decision(several):
    decision, labels = Decision(several, 1 / 3, (0.1, 0.2)), ("x", "y")
    values = decision.to_json(labels)
    assert values == {"temperature": 1 / 3, "thresholds": {"x": 0.1, "y": 0.2}}
    assert Decision(several).with_values(values, labels) == decision
    assert Decision(several).to_json(labels) == {}
    assert Decision(several).with_values({}, labels) == Decision(several)
