"""Standard errors of scores over examples that are drawn like those that were evaluated."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.scores.classification import Counts

# Number of bootstrap resamples, which give the error to 2 %, and maximum number of examples in one:
# the error for more examples is smaller by the square root of their number.
_RESAMPLES, _MAX_EXAMPLES = 1000, 1000


def sampling_error(
    score: Callable[[Sequence[Any], Sequence[Any]], float],
    examples: Sequence[Any],
    predictions: Sequence[Any],
) -> float:
    """Returns the standard error of a score.

    In closed form for a mean over examples, such as an accuracy; otherwise by bootstrap (Efron
    1979).

    Args:
      score: function of examples and their predictions.
    """
    count, rng = len(examples), np.random.default_rng(0)
    some = rng.permutation(count)[:_MAX_EXAMPLES]
    pairs = [([examples[i]], [predictions[i]]) for i in some]
    sample = [part for pair in pairs for part in pair[0]], [p for pair in pairs for p in pair[1]]
    values = np.array([score(*pair) for pair in pairs])
    if np.isclose(values.mean(), score(*sample), rtol=1e-6):
        if (top := values.max()) > 0 and np.isin(values, (0.0, top)).all():
            value = score(examples, predictions)
            return float((value * (top - value) / count) ** 0.5)
        return float(values.std() / count**0.5)
    found = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(some), size=len(some))
        found.append(score(*([part[i] for i in chosen] for part in sample)))
    return float(np.nanstd(found) * (len(some) / count) ** 0.5)


def error_of_counts(
    counts: Sequence[Counts], metric: str, others: Sequence[Counts] | None = None
) -> float:
    """Returns the standard error of a score of counts by bootstrap over the examples.

    Args:
      metric: f1, precision or recall.
      others: counts of other predictions for the same examples; the error is then that of the
        difference of both scores.
    """
    sides = [
        np.array([(count.correct, count.predicted, count.gold) for count in side])
        for side in (counts, others)
        if side is not None
    ]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(counts), size=len(counts))
        sums = [Counts(*map(int, rows[chosen].sum(0))) for rows in sides]
        found.append([getattr(total, metric) for total in sums])
    return float(np.std(np.subtract.reduce(found, axis=1)))
