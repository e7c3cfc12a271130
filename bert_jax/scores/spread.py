"""The spread of one score over several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.files.errors import UserError

_TOLERANCE = 1e-9  # scores from the same counts may differ by rounding


@dataclass(frozen=True)
class SeedSummary:
    """One score over several seeds.

    Attributes:
      standard_deviation: sample standard deviation (n - 1); None for a single seed.
      degenerate: number of seeds that score no better than the majority class.
    """

    runs: int
    mean: float
    standard_deviation: float | None
    best: float
    degenerate: int


def summarize_seeds(scores: Sequence[float], majority: float | None) -> SeedSummary:
    """Summarizes the scores of several runs, one for each seed.

    Args:
      scores: one for each run.
      majority: `classification.majority_class_score` on the same examples; None: unknown.

    Raises:
      UserError: there are no scores.
    """
    if not len(scores):
        raise UserError("There are no runs to summarize.")
    values = np.asarray(scores, np.float64)
    threshold = -np.inf if majority is None else majority + _TOLERANCE
    return SeedSummary(
        runs=len(values),
        mean=float(values.mean()),
        standard_deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
        best=float(values.max()),
        degenerate=int((values <= threshold).sum()),
    )
