"""The spread of a score over seeds."""

import numpy as np
import pytest

from bert_jax.scores.spread import summarize_seeds


def test_the_spread_over_seeds():
    summary = summarize_seeds([0.8, 0.6, 0.7, 0.5], majority=0.6)
    assert (summary.runs, summary.best, summary.degenerate) == (4, 0.8, 2)
    assert summary.mean == pytest.approx(0.65)
    assert summary.standard_deviation == pytest.approx(np.sqrt(0.05 / 3))  # n - 1
    assert summarize_seeds([0.8], majority=0.6).standard_deviation is None


def test_no_runs_are_reported():
    with pytest.raises(ValueError, match="There are no runs to summarize"):
        summarize_seeds([], 0.5)
