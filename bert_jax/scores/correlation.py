"""Correlations of predictions with gold labels or numbers.

Gold comes first, predictions second. An undefined correlation, of a constant, is 0.
"""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from bert_jax.files.errors import UserError
from bert_jax.scores.classification import paired


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Returns Matthews' correlation coefficient, for any number of classes (Gorodkin, 2004)."""
    gold, predicted = paired(gold, predicted)
    labels = np.unique(np.concatenate([gold, predicted]))
    true = (gold[:, None] == labels).sum(axis=0).astype(float)
    guessed = (predicted[:, None] == labels).sum(axis=0).astype(float)
    correct, total = float((gold == predicted).sum()), float(len(gold))
    spread = (total**2 - true @ true) * (total**2 - guessed @ guessed)
    return float((correct * total - true @ guessed) / np.sqrt(spread)) if spread else 0.0


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Returns Pearson's correlation; 0 where one side is constant.

    Raises:
      UserError: a number is not finite.
    """
    return _correlation("pearsonr", gold, predicted)


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Returns Spearman's rank correlation: Pearson's of the ranks; ties have their mean rank.

    Raises:
      UserError: a number is not finite.
    """
    return _correlation("spearmanr", gold, predicted)


def _correlation(function: str, gold: ArrayLike, predicted: ArrayLike) -> float:
    gold, predicted = (side.astype(np.float64) for side in paired(gold, predicted))
    for name, side in (("gold", gold), ("predicted", predicted)):
        if not np.isfinite(side).all():
            raise UserError(
                f"{np.sum(~np.isfinite(side))} of {len(side)} {name} numbers are not finite:"
                f" there is no correlation."
            )
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    from scipy import stats  # takes a second to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(getattr(stats, function)(gold, predicted).statistic)


# Of numbers: (gold, predicted) -> correlation.
METRICS = {"spearman": spearman, "pearson": pearson}
