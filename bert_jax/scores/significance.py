"""Whether two sets of scores, over seeds, differ by more than their spread."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.files.errors import UserError


@dataclass(frozen=True)
class Welch:
    """Welch's test for two samples with possibly different variances (Welch, 1947).

    Attributes:
      difference: mean of the first minus mean of the second sample.
      statistic: the difference divided by its standard error.
      degrees_of_freedom: degrees of freedom by Welch and Satterthwaite.
      p_value: two-sided.
    """

    difference: float
    statistic: float
    degrees_of_freedom: float
    p_value: float


def welch(first: Sequence[float], second: Sequence[float]) -> Welch | None:
    """Compares the means of two samples.

    Args:
      first: float[n], n at least 2.
      second: float[m], m at least 2.

    Returns:
      The test; None if a sample has a single score, or neither has any spread: then there is
      nothing to compare the difference with.

    Raises:
      UserError: a score is not finite, or a sample is empty.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if not len(a) or not len(b):
        raise UserError("There are no scores to compare.")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise UserError(f"Scores that are not finite cannot be compared: {first} with {second}.")
    if min(len(a), len(b)) < 2 or not (np.ptp(a) or np.ptp(b)):
        return None
    from scipy import stats  # takes a second to import

    with warnings.catch_warnings():
        # Equal scores in one sample are not a loss of precision.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        result = stats.ttest_ind(a, b, equal_var=False)
    df = float(result.df)  # pyright: ignore[reportAttributeAccessIssue]
    statistic, p = float(result.statistic), float(result.pvalue)  # pyright: ignore
    return None if math.isnan(p) else Welch(float(a.mean() - b.mean()), statistic, df, p)
