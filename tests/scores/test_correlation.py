"""Correlations against scikit-learn, and against cases worked out by hand."""

import numpy as np
import pytest

from bert_jax.scores.correlation import matthews, pearson, spearman


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_matthews_agrees_with_scikit_learn(sklearn, seed, classes):
    rng = np.random.default_rng(seed)
    gold = rng.integers(rng.integers(1, classes + 1), size=40)  # some classes may be missing
    predicted = np.where(rng.random(40) < 0.5, gold, rng.integers(classes, size=40))
    assert matthews(gold, predicted) == pytest.approx(sklearn.matthews_corrcoef(gold, predicted))


def test_correlations_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman([0, 1, 1, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert pearson([1, 2, 3], [-2, -4, -6]) == pytest.approx(-1)
    assert pearson([0, 1e200], [0, 1e200]) == pytest.approx(1)
    almost_constant = [1, 1 + 1e-14, 1 + 2e-14]
    assert pearson([0, 1, 2], almost_constant) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("score", [pearson, spearman])
def test_the_correlation_of_a_constant_is_zero(score):
    assert score([0.1] * 7, range(7)) == score(range(7), [0.1] * 7) == score([1], [1]) == 0
    assert matthews([1, 0], [1, 1]) == 0
    with pytest.raises(ValueError, match="1 of 3 predicted numbers are not finite"):
        score([1, 2, 3], [1, float("nan"), 3])
