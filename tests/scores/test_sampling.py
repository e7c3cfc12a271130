"""Standard errors of scores, against closed forms."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bert_jax.scores.classification import Counts
from bert_jax.scores.sampling import error_of_counts, sampling_error
from bert_jax.tasks.tagging import Tagging


def accuracy(examples, predictions):
    return float(np.mean(np.equal(examples, predictions)))


def test_the_sampling_error_of_an_accuracy_is_that_of_a_proportion():
    count = 4000
    predictions = np.arange(count) % 10 < 8
    found = sampling_error(accuracy, [True] * count, list(predictions))
    assert found == pytest.approx((0.8 * 0.2 / count) ** 0.5, rel=1e-9)


def test_the_sampling_errors_of_other_scores():
    numbers = np.random.default_rng(0).normal(50, 10, 400)
    mean, spread = (
        sampling_error(lambda _, n, of=of: float(of(n)), [None] * 400, list(numbers))
        for of in (np.mean, np.std)
    )
    assert mean == pytest.approx(numbers.std() / 20, rel=1e-9)
    fourth = np.mean((numbers - numbers.mean()) ** 4)  # the delta method
    expected = ((fourth - numbers.var() ** 2) / (4 * numbers.var() * 400)) ** 0.5
    assert spread == pytest.approx(expected, rel=0.1)


def test_the_sampling_error_of_tags_is_over_sentences():
    examples: Any = [SimpleNamespace(tags=("B-A", "O")) for _ in range(400)]
    good = [n % 5 > 0 for n in range(400)]
    predictions = [{"tags": ("B-A", "O") if is_good else ("B-B", "O")} for is_good in good]
    of_proportion = (0.8 * 0.2 / 400) ** 0.5
    for metric, factor in (("f1", 1), ("precision", 1), ("recall", 1), ("accuracy", 0.5)):
        found = Tagging().error(examples, predictions, metric)
        assert found == pytest.approx(factor * of_proportion, rel=0.1)


def test_the_error_of_a_difference_of_counts_is_paired():
    right = [Counts(int(i % 3 > 0), 1, 1) for i in range(300)]
    assert error_of_counts(right, "f1", right) == 0
    # One side right, the other wrong: a difference is 1 - 2 p for each example.
    wrong = [Counts(1 - count.correct, 1, 1) for count in right]
    expected = 2 * error_of_counts(right, "f1")
    np.testing.assert_allclose(error_of_counts(right, "f1", wrong), expected, rtol=1e-6)
