"""Thresholds against all possible ones."""

import numpy as np
import pytest

from bert_jax.scores import classification as scores
from bert_jax.scores.thresholds import best_threshold, class_thresholds, label_thresholds


def macro_f1(gold, predicted):
    return scores.macro_f1(scores.class_counts(gold, predicted))


def skewed(examples, share, seed=0):
    """Gold of two classes, the second one rare, and probabilities that favor the first one."""
    rng = np.random.default_rng(seed)
    gold = (rng.random(examples) < share).astype(int)
    logits = rng.standard_normal(examples) + 1.5 * gold - 3
    second = 1 / (1 + np.exp(-logits))
    return gold, np.stack([1 - second, second], axis=1)


@pytest.mark.parametrize("score", [macro_f1, scores.f1, scores.accuracy])
def test_no_other_threshold_of_two_classes_has_a_better_score(score):
    gold, probabilities = skewed(120, 0.1)
    thresholds = class_thresholds(probabilities, gold, lambda found: score(gold, found))
    assert sum(thresholds) == pytest.approx(1)
    found = (probabilities / thresholds).argmax(-1)
    np.testing.assert_array_equal(found, probabilities[:, 1] > thresholds[1])
    values = np.sort(probabilities[:, 1])
    every = [-1.0, *(values[1:] + values[:-1]) / 2, 2.0]
    best = max(score(gold, (probabilities[:, 1] > t).astype(int)) for t in every)
    assert score(gold, found) == pytest.approx(best)


@pytest.mark.parametrize("share, least", [(0.03, 1.0), (0.4, 0.99)])
def test_a_file_of_many_examples_is_searched_in_two_steps(share, least):
    """With up to a hundred rare examples the result is exact."""
    gold, probabilities = skewed(3000, share)
    values = np.sort(probabilities[:, 1])

    def score(threshold):
        return scores.f1(gold, (probabilities[:, 1] > threshold).astype(int))

    found = best_threshold(probabilities[:, 1], gold == 1, score, 0.5, (0.0, 1.0))
    best = max(map(score, (values[1:] + values[:-1]) / 2))
    assert least * best <= found[1] == score(found[0]) <= best
    assert score(0.5) < 0.9 * found[1]


def test_what_is_best_already_is_kept():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
    gold = np.array([0, 0, 1])
    found = class_thresholds(probabilities, gold, lambda names: macro_f1(gold, names))
    assert found == (0.5, 0.5)
    assert class_thresholds(np.ones((3, 1)), np.zeros(3, int), lambda names: 1.0) == (1.0,)
    assert label_thresholds(np.array([[0.3], [0.2]]), np.zeros((2, 1), bool)) == (0.5,)


def test_thresholds_of_three_classes_find_the_rare_one():
    rng = np.random.default_rng(3)
    gold = rng.choice(3, p=[0.8, 0.15, 0.05], size=400)
    logits = rng.standard_normal((400, 3)) + 2 * np.eye(3)[gold] + [4, 2, 0]
    exp = np.exp(logits)
    probabilities = exp / exp.sum(-1, keepdims=True)
    found = class_thresholds(probabilities, gold, lambda names: macro_f1(gold, names))
    before = macro_f1(gold, probabilities.argmax(-1))
    after = macro_f1(gold, (probabilities / found).argmax(-1))
    assert after > before + 0.1
    # The logits are those of the classes plus constants, which the thresholds should take back.
    unbiased = macro_f1(gold, (logits - [4, 2, 0]).argmax(-1))
    assert after >= unbiased


def test_the_threshold_of_each_of_several_labels_has_the_best_f1():
    columns = [skewed(80, share, seed) for seed, share in enumerate((0.05, 0.3, 0.6))]
    gold = np.stack([column for column, _ in columns], axis=1).astype(bool)
    probabilities = np.stack([found[:, 1] for _, found in columns], axis=1)
    thresholds = label_thresholds(probabilities, gold)
    for is_gold, found, threshold in zip(gold.T, probabilities.T, thresholds, strict=True):
        values = np.sort(found)
        every = [0.5, *(values[1:] + values[:-1]) / 2]
        best = max(scores.f1(is_gold, found > t) for t in every)
        assert scores.f1(is_gold, found > threshold) == pytest.approx(best)
