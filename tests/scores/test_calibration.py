"""Temperatures and calibration errors against closed forms and scikit-learn's log loss."""

import numpy as np
import pytest

from bert_jax.scores.calibration import (
    calibration_error,
    fit_temperature,
    negative_log_likelihood,
)


def test_the_temperature_of_equally_sure_answers_has_a_closed_form():
    """Nine of ten are right where the model is sure with logits (0, 5): T = 5 / log(0.9 / 0.1)."""
    logits = np.tile([0.0, 5.0], (50, 1))
    gold = (np.arange(50) % 10 > 0).astype(int)
    assert fit_temperature(logits, gold) == pytest.approx(5 / np.log(9), rel=1e-9)
    # The scale of the logits is that of the temperature.
    assert fit_temperature(3 * logits, gold) == pytest.approx(15 / np.log(9), rel=1e-9)
    assert fit_temperature(logits, np.ones(50, int)) == pytest.approx(0.1)  # no errors: bounded


def test_the_temperature_has_the_lowest_negative_log_likelihood():
    rng = np.random.default_rng(0)
    logits = 4 * rng.standard_normal((200, 3))
    gold = (logits + 6 * rng.standard_normal((200, 3))).argmax(-1)
    fitted = fit_temperature(logits, gold)
    grid = np.geomspace(0.1, 10, 2001)
    values = [negative_log_likelihood(logits / t, gold) for t in grid]
    assert 1 < fitted < 10 and fitted == pytest.approx(grid[np.argmin(values)], rel=3e-3)
    assert negative_log_likelihood(logits / fitted, gold) <= min(values)


def test_the_negative_log_likelihood_agrees_with_scikit_learn(sklearn):
    rng = np.random.default_rng(1)
    logits, gold = rng.standard_normal((30, 4)), rng.integers(4, size=30)
    exp = np.exp(logits)
    theirs = sklearn.log_loss(gold, exp / exp.sum(-1, keepdims=True), labels=range(4))
    assert negative_log_likelihood(logits, gold) == pytest.approx(theirs)
    assert negative_log_likelihood(logits + 1e4, gold) == pytest.approx(theirs)


def test_the_calibration_error_is_the_mean_gap_of_bins():
    # Two bins: 0.62 and 0.66, one right; 0.95 four times, three right.
    sure, right = [0.62, 0.66, *[0.95] * 4], [True, False, True, True, True, False]
    assert calibration_error(sure, right) == pytest.approx((2 * 0.14 + 4 * 0.2) / 6)
    assert calibration_error([1.0, 1.0], [True, True]) == 0
