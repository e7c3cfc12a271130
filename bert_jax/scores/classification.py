"""Scores of classes: accuracy, precision, recall, F1, and the score of the majority class.

Gold labels come first, predictions second. All scores are fractions, and higher is better. An
undefined quotient, 0 / 0, is 0, as in scikit-learn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bert_jax.files.errors import UserError


@dataclass(frozen=True)
class Counts:
    """Correct predictions, all predictions, and gold labels. Counts add up."""

    correct: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.correct + other.correct, self.predicted + other.predicted, self.gold + other.gold
        )

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        total = self.predicted + self.gold
        return 2 * self.correct / total if total else 0.0


def micro(counts: Mapping[Any, Counts]) -> Counts:
    """Returns the counts of all classes together; their `f1` is the micro-averaged F1."""
    return sum(counts.values(), Counts())


def macro_f1(counts: Mapping[Any, Counts]) -> float:
    """Returns the mean F1 of the classes that the gold labels or the predictions have."""
    return sum(count.f1 for count in counts.values()) / len(counts) if counts else 0.0


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Fraction of correct examples; [examples, classes] (multi-label): correct in every class."""
    gold, predicted = paired(gold, predicted)
    return float((gold == predicted).reshape(len(gold), -1).all(axis=1).mean())


def class_counts(gold: ArrayLike, predicted: ArrayLike) -> dict[Any, Counts]:
    """Returns label -> Counts, sorted by label, where each example has one class."""
    gold, predicted = paired(gold, predicted)
    labels = np.unique(np.concatenate([gold, predicted]))
    return {label.item(): _counts(gold == label, predicted == label) for label in labels}


def multi_label_counts(gold: ArrayLike, predicted: ArrayLike) -> dict[int, Counts]:
    """Returns class number -> Counts of bool[examples, classes], any number for each example."""
    gold, predicted = paired(gold, predicted)
    columns = zip(gold.T.astype(bool), predicted.T.astype(bool), strict=True)
    return {number: _counts(*column) for number, column in enumerate(columns)}


def f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Returns the F1 of class 1, the positive one."""
    return class_counts(gold, predicted).get(1, Counts()).f1


def _counts(gold: np.ndarray, predicted: np.ndarray) -> Counts:
    return Counts(int((gold & predicted).sum()), int(predicted.sum()), int(gold.sum()))


def majority_class_score(score: Callable[[Any, Any], float], gold: ArrayLike) -> float:
    """Returns `score(gold, predicted)` if every prediction is the most frequent answer.

    Each row of multi-label gold labels is one answer. Of equally frequent answers, the one with
    the best score counts.

    Raises:
      UserError: there are no examples.
    """
    gold = np.asarray(gold)
    answers, counts = np.unique(gold, axis=0, return_counts=True)
    tied = answers[counts == counts.max(initial=0)]
    if not len(tied):
        raise UserError("There are no examples: no class is the most frequent one.")
    return max(score(gold, np.broadcast_to(answer, gold.shape)) for answer in tied)


def paired(gold: ArrayLike, predicted: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns both as arrays.

    Raises:
      UserError: their shapes differ, or there are no examples.
    """
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if gold.shape != predicted.shape:
        raise UserError(f"gold is {list(gold.shape)}, predictions are {list(predicted.shape)}.")
    if not gold.size:
        raise UserError("There are no examples to score.")
    return gold, predicted
