"""The verdict on good metrics and on each kind of bad ones."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.tools.listeners import reviews, verdicts
from bert_jax.tools.listeners.verdicts import Outcome, corpus_verdict
from bert_jax.training.listener import Evaluation

GOOD = {"masked_lm_loss": 3.0, "masked_lm_accuracy": 0.4, "next_sentence_accuracy": 0.8}
NEXT = {"loss": 3.0, "causal_lm_accuracy": 0.4}
NAN = float("nan")


def lines_of(values, rows=1000, unknown=0.001):
    statistics = {
        "rows": rows,
        "unigram_entropy": 6.5,
        "most_frequent_token": {"id": 9, "piece": "the", "share": 0.05},
        "random_next_share": 0.48,
        "unknown_token_share": unknown,
    }
    return corpus_verdict(values, statistics, statistics)


@pytest.mark.parametrize(
    "values, lines",
    [
        (
            GOOD,
            [
                "  MLM loss              3.000 nats   unigram entropy      6.500",
                "  MLM accuracy           40.0%       always 'the'         5.0%",
                "  NSP accuracy           80.0%       majority class       52.0%",
            ],
        ),
        (
            NEXT,
            [
                "  next-token loss       3.000 nats   unigram entropy      6.500",
                "  next-token accuracy    40.0%       always 'the'         5.0%",
            ],
        ),
        ({"loss": 3.0}, ["  next-token loss       3.000 nats   unigram entropy      6.500"]),
    ],
)
def test_good_metrics_are_compared_with_simple_baselines(values, lines):
    below = "the loss is 3.50 nats below the unigram entropy"
    good = f"health: good, it has learned from context: {below}."
    assert lines_of(values) == [*lines, good]


def test_a_loss_near_the_unigram_entropy_is_a_beginning():
    assert lines_of({"loss": 6.0})[-1] == (
        "health: fair, it has begun to learn from context: the loss is 0.50 nats below the unigram"
        " entropy. Train longer."
    )


@pytest.mark.parametrize(
    "values, advice",
    [
        (GOOD | {"masked_lm_loss": 6.6}, "The MLM loss is no better than knowing how frequent"),
        (GOOD | {"masked_lm_loss": NAN}, "The MLM loss is no better than knowing how frequent"),
        (GOOD | {"masked_lm_accuracy": 0.05}, "No better than always predicting the most frequent"),
        (GOOD | {"next_sentence_accuracy": 0.52}, "Next-sentence accuracy is at chance"),
        # 0.55 is less than three standard errors (1.6 % each, of 1,000 pairs) above 0.52.
        (GOOD | {"next_sentence_accuracy": 0.55}, "Next-sentence accuracy is at chance"),
        (NEXT | {"loss": 6.5}, "The loss is no better than knowing how frequent each token is"),
        (NEXT | {"causal_lm_accuracy": 0.05}, "No better than always predicting the most frequent"),
    ],
)
def test_bad_metrics_give_advice(values, advice):
    assert lines_of(values)[-1].startswith(f"health: {advice}")
    assert "good" in lines_of(GOOD | {"next_sentence_accuracy": 0.55}, rows=100_000)[-1]


@pytest.mark.parametrize("values", [GOOD, NEXT])
def test_unknown_tokens_are_reported(values):
    assert "health: 10.0% of the tokens are unknown" in lines_of(values, unknown=0.1)[-1]


# ------------------------------------------------------------------ labelled examples


def losses(first: float, last: float, shape: float = 6.0) -> list[float]:
    """Returns losses of ten reports, which fall by a power of the rest of the way."""
    return [last + (first - last) * (1 - i / 9) ** shape for i in range(10)]


FALLING = 1.0  # to the end
# What an expert says of a run, and what nobody should: of (metric, value, error, baseline, top,
# losses, held-out loss) and the classes.
KINDS: dict[str, tuple[str, str, tuple]] = {
    # A rate that is too low leaves the model where it was: predictions are the majority class.
    "untrained": (
        "degenerate|hardly fell|Raise optimizer.learning_rate",
        "good|lower optimizer.learning_rate|never predicted",
        ("accuracy", 0.95, 0.02, 0.95, 1.0, losses(0.25, 0.24), 0.22),
    ),
    "diverged": (
        "degenerate|rose|lower optimizer.learning_rate",
        "good|raise|Raise",
        ("accuracy", 0.50, 0.02, 0.51, 1.0, losses(0.70, 0.9), 0.9),
    ),
    "memorized": (
        "degenerate|memorized|more",
        "good|learning_rate",
        ("matthews", 0.09, 0.05, 0.0, 1.0, losses(0.7, 0.11), 0.9),
    ),
    # An F1 above 0 that is worth nothing.
    "hardly trained": (
        "weak|never predicted (LOC, ORG)|still falling|train longer",
        "good|overfitting",
        ("f1", 0.165, 0.006, 0.0, 1.0, losses(2.2, 0.8, FALLING), 0.9, 4, ("LOC", "ORG")),
    ),
    "half way": (
        "fair|still falling",
        "good|never predicted|overfitting",
        ("macro_f1", 0.30, 0.02, 0.08, 1.0, losses(1.8, 0.9, FALLING), 1.1, 6),
    ),
    "a class was given up": (
        "good|1 of 6 classes are never predicted (anger)",
        "degenerate|weak",
        ("accuracy", 0.75, 0.01, 0.3, 1.0, losses(1.7, 0.4), 0.6, 6, ("anger",)),
    ),
    "overfit": (
        "good|overfitting",
        "degenerate|train longer",
        ("accuracy", 0.85, 0.01, 0.5, 1.0, losses(0.6, 0.01), 0.5),
    ),
    "good": (
        "good|above a constant prediction",
        "degenerate|overfitting|longer|raise|never predicted",
        ("pearson", 0.75, 0.02, 0.0, 1.0, losses(2.0, 0.4), 0.5),
    ),
    "lucky": (
        "degenerate|not reliably above a constant prediction (+0.0",
        "good",
        ("accuracy", 0.564, 0.04, 0.5, 1.0, losses(0.7, 0.5, FALLING), 0.7),
    ),
    "answers": ("good", "degenerate|weak", ("f1", 70.0, 0.5, 12.0, 100.0, losses(4, 0.9), 1.2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_gets_the_verdict_of_an_expert(kind):
    said, unsaid, values = KINDS[kind]
    outcome = Outcome(*values)
    score, health = verdicts.labelled_verdict(outcome)
    assert f"{outcome.value:.4f} ± {outcome.error:.4f}" in score
    assert all(words in health for words in said.split("|")), health
    assert not any(words in health for words in unsaid.split("|")), health


def test_a_model_without_an_encoder_is_a_baseline():
    good = Outcome("accuracy", 0.8, 0.01, 0.5, simple=0.7, difference_error=0.02)
    score, adds, health = verdicts.labelled_verdict(good)
    assert adds == "  without an encoder 0.7000   the encoder adds +0.1000 ± 0.0200"
    assert health.startswith("health: good")
    *_, health = verdicts.labelled_verdict(dataclasses.replace(good, simple=0.81))
    assert health.startswith("health: weak") and "below a model of single words" in health


def test_each_selected_step_is_compared_with_one_model_without_an_encoder(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(reviews, "predict_without_encoder", lambda run: trained.append(run))
    monkeypatch.setattr(reviews, "verdict", lambda run, step, _, x: [f"verdict {step} {x}"])
    rows: Any = SimpleNamespace(rows_per_epoch=3)
    run: Any = SimpleNamespace(
        workdir=str(tmp_path), phase_at=lambda step: step, evaluation_rows=lambda phase: [rows]
    )
    shown = []
    review = reviews.Review(shown.append)
    for step, is_chosen in ((1, False), (2, True), (3, False)):
        evaluation = Evaluation({}, ())
        review.evaluation(run, step, evaluation, is_last=step == 3, is_chosen=is_chosen)
    assert trained == [run] and shown == ["verdict 3 None"]
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert written["verdict"] == ["verdict 2 None"]


def test_without_a_baseline_there_is_no_verdict():
    (line,) = verdicts.labelled_verdict(Outcome("f1", 0.5, 0.01, None))
    assert line == "  f1 0.5000 ± 0.0100"
