"""Scores of classes against scikit-learn, and against cases worked out by hand."""

import numpy as np
import pytest

from bert_jax.scores import classification as scores
from bert_jax.scores import correlation


def arrays(seed: int, classes: int = 3, examples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predictions, some classes of which may be missing on one side or both."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(rng.integers(1, classes + 1), size=examples)
    return gold, np.where(rng.random(examples) < 0.5, gold, rng.integers(classes, size=examples))


@pytest.mark.parametrize("seed", range(5))
def test_classification_agrees_with_scikit_learn(sklearn, seed):
    gold, predicted = arrays(seed)
    assert scores.accuracy(gold, predicted) == pytest.approx(
        sklearn.accuracy_score(gold, predicted)
    )
    counts = scores.class_counts(gold, predicted)
    expected = sklearn.precision_recall_fscore_support(
        gold, predicted, labels=list(counts), zero_division=0
    )
    ours = [(each.precision, each.recall, each.f1, each.gold) for each in counts.values()]
    np.testing.assert_allclose(ours, np.transpose(expected), atol=1e-12)
    for average, ours in (
        ("micro", scores.micro(counts).f1),
        ("macro", scores.macro_f1(counts)),
    ):
        theirs = sklearn.f1_score(gold, predicted, average=average, zero_division=0)
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("seed", range(5))
def test_multi_label_scores_agree_with_scikit_learn(sklearn, seed):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.random((2, 30, 4)) < rng.random(4) * [0, 0.5, 1, 1]
    counts = scores.multi_label_counts(gold, predicted)
    averages = {"micro": scores.micro(counts).f1, "macro": scores.macro_f1(counts)}
    for average, ours in averages.items():
        theirs = sklearn.f1_score(gold, predicted, average=average, zero_division=0)
        assert ours == pytest.approx(theirs)
    theirs = sklearn.accuracy_score(gold, predicted)
    assert scores.accuracy(gold, predicted) == pytest.approx(theirs)


@pytest.mark.parametrize(
    "score, gold, expected",
    [
        (scores.accuracy, ["a", "b", "a", "c"], 0.5),
        (scores.f1, [1, 1, 0], 0.8),  # precision 2/3, recall 1
        (scores.f1, [1, 0, 0], 0),
        (scores.f1, [1, 0], 2 / 3),  # equally frequent: the better of both
        (correlation.matthews, [1, 1, 0], 0),
        (correlation.spearman, [0.5, 0.5, 3], 0),
        (scores.accuracy, [[1, 0], [0, 1], [1, 0]], 2 / 3),
    ],
)
def test_the_score_of_the_majority_class(score, gold, expected):
    assert scores.majority_class_score(score, gold) == pytest.approx(expected)


def test_sides_that_differ_in_shape_or_are_empty_are_reported():
    with pytest.raises(ValueError, match=r"gold is \[2\], predictions are \[3\]"):
        scores.accuracy([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="There are no examples to score"):
        scores.class_counts([], [])
    with pytest.raises(ValueError, match="no class is the most frequent"):
        scores.majority_class_score(scores.accuracy, [])
