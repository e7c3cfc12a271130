"""The spread over seeds; Welch's test against its formulas and an integral of Student's density."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from bert_jax.scores.significance import welch
from bert_jax.scores.spread import summarize_seeds


def p_value(t: float, df: float) -> float:
    """Two-sided, by integration of the density of Student's t distribution."""
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    density = lambda x: math.exp(log_scale - (df + 1) / 2 * math.log1p(x * x / df))  # noqa: E731
    return 1 - 2 * quad(density, 0, abs(t), epsabs=1e-12)[0]


@pytest.mark.parametrize(
    "first, second",
    [
        ([84.1, 84.4, 84.3], [82.0, 82.9, 81.7]),
        ([0.5, 0.7], [0.6, 0.61, 0.62, 0.9, 0.3]),
        ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]),
    ],
)
def test_the_test_is_that_of_the_formulas(first, second):
    a, b = np.var(first, ddof=1) / len(first), np.var(second, ddof=1) / len(second)
    t = (np.mean(first) - np.mean(second)) / np.sqrt(a + b)
    df = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    found = welch(first, second)
    assert found is not None
    assert found.difference == pytest.approx(np.mean(first) - np.mean(second))
    assert found.statistic == pytest.approx(t)
    assert found.degrees_of_freedom == pytest.approx(df)
    assert found.p_value == pytest.approx(p_value(t, df), abs=1e-8)


@pytest.mark.parametrize("first, second", [([1.0], [2.0, 3.0]), ([1.0, 1.0], [2.0, 2.0])])
def test_without_spread_there_is_no_test(first, second):
    assert welch(first, second) is None


@pytest.mark.parametrize(
    "first, second, message",
    [([], [1.0], "no scores to compare"), ([1.0, math.nan], [1.0, 2.0], "not finite")],
)
def test_scores_that_cannot_be_compared_are_refused(first, second, message):
    with pytest.raises(ValueError, match=message):
        welch(first, second)


def test_the_spread_over_seeds():
    summary = summarize_seeds([0.8, 0.6, 0.7, 0.5], majority=0.6)
    assert (summary.runs, summary.best, summary.degenerate) == (4, 0.8, 2)
    assert summary.mean == pytest.approx(0.65)
    assert summary.standard_deviation == pytest.approx(np.sqrt(0.05 / 3))  # n - 1
    assert summarize_seeds([0.8], majority=0.6).standard_deviation is None
