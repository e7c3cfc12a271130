"""Calibration: whether probabilities are the shares of correct answers, and a temperature for it.

A temperature T divides the logits before the softmax. It changes neither the order of the
probabilities of an example nor the accuracy (Guo et al. 2017, arXiv 1706.04599, section 4.2).
"""

import numpy as np
from numpy.typing import ArrayLike

_BINS = 10
# Without errors in the file, no temperature is low enough.
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.1, 10.0
# Halvings of the range of its logarithm, to the precision of float64.
_HALVINGS = 55


def calibration_bins(confidences: ArrayLike, correct: ArrayLike) -> list[list[float]]:
    """Returns [mean confidence, share of correct answers, their number] by bins.

    There are ten bins of equal width; those without answers are left out.
    """
    found, is_right = np.asarray(confidences, float), np.asarray(correct, bool)
    bins = np.minimum((found * _BINS).astype(int), _BINS - 1)
    return [
        [float(found[bins == b].mean()), float(is_right[bins == b].mean()), int((bins == b).sum())]
        for b in range(_BINS)
        if (bins == b).any()
    ]


def calibration_error(confidences: ArrayLike, correct: ArrayLike) -> float:
    """Returns the expected calibration error, over ten bins (Naeini et al. 2015; Guo et al. 2017).

    It is the mean over the answers of |mean confidence - share of correct ones| of their bin.
    """
    bins = calibration_bins(confidences, correct)
    total = sum(count for *_, count in bins)
    return sum(count * abs(sure - right) for sure, right, count in bins) / total


def negative_log_likelihood(logits: np.ndarray, gold: np.ndarray) -> float:
    """Returns the mean of -log softmax(logits)[gold] in nats.

    Args:
      logits: float64[answers, classes].
      gold: int[answers].
    """
    shifted = logits - logits.max(-1, keepdims=True)
    of_gold = np.take_along_axis(shifted, gold[:, None], axis=-1)[:, 0]
    return float((np.log(np.exp(shifted).sum(-1)) - of_gold).mean())


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """Returns the temperature from 0.1 to 10 with the lowest negative log-likelihood.

    It is convex in 1 / T, so bisection of its derivative finds the minimum.

    Args:
      logits: float64[answers, classes].
      gold: int[answers].
    """
    shifted = logits - logits.max(-1, keepdims=True)
    of_gold = np.take_along_axis(shifted, gold[:, None], axis=-1)[:, 0]
    low, high = -np.log(_MAX_TEMPERATURE), -np.log(_MIN_TEMPERATURE)  # of log(1 / T)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        exp = np.exp(np.exp(middle) * shifted)
        expected = (exp * shifted).sum(-1) / exp.sum(-1)
        is_rising = (expected - of_gold).mean() > 0
        low, high = (low, middle) if is_rising else (middle, high)
    return float(np.exp(-(low + high) / 2))
