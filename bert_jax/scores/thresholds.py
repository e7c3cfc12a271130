"""Decision thresholds with the best score on a file.

A score on the file that chose the thresholds is optimistic: another file tells what they are worth.
"""

from collections.abc import Callable

import numpy as np

# Maximum number of candidates that are scored at a time.
_MAX_CANDIDATES = 100
# Maximum number of passes over the classes.
_MAX_PASSES = 10
_TINY = 1e-300


def best_threshold(
    values: np.ndarray,
    is_gold: np.ndarray,
    score: Callable[[float], float],
    default: float,
    ends: tuple[float, float],
) -> tuple[float, float]:
    """Returns the threshold with the best score, and the score.

    Candidates are the default, the ends, and the midpoints between neighboring values where the
    upper one has gold examples and the lower one others: any other threshold can be moved to one of
    them without making a right answer wrong. If there are more than 100, some are scored first,
    equally spaced in rank, and then all around the best. Of equal scores, the one nearest to the
    default wins.

    Args:
      values: float64[examples]; those above the threshold are answered with yes.
      is_gold: bool[examples], whether yes is right.
      score: (threshold) -> score, the higher the better.
      default: the threshold to keep if none is better.
      ends: below and above all values.
    """
    distinct, places = np.unique(values, return_inverse=True)
    has_gold, has_other = (np.bincount(places, of, len(distinct)) > 0 for of in (is_gold, ~is_gold))
    middles = (distinct[1:] + distinct[:-1]) / 2
    middles = np.array([ends[0], *middles[has_gold[1:] & has_other[:-1]], ends[1]])
    best = (default, score(default))
    while True:
        step = -(-len(middles) // _MAX_CANDIDATES)
        scores = np.array([score(float(middle)) for middle in middles[::step]])
        ties = step * np.flatnonzero(scores == scores.max())
        place = int(ties[np.abs(middles[ties] - default).argmin()])
        if scores.max() > best[1]:
            best = (float(middles[place]), float(scores.max()))
        if step == 1:
            return best
        middles = middles[max(0, place - step) : place + step + 1]


def class_thresholds(
    probabilities: np.ndarray, gold: np.ndarray, score: Callable[[np.ndarray], float]
) -> tuple[float, ...]:
    """Returns a threshold for each class; the class with the largest quotient is predicted.

    With two classes, this is the class whose probability exceeds its threshold. With more, the
    thresholds are chosen one after the other until no pass improves the score (coordinate ascent).
    The best rule for macro F1 would also subtract a constant from each weighted probability
    (Narasimhan et al. 2015, Consistent multiclass algorithms for complex performance measures).

    Args:
      probabilities: float64[examples, classes].
      gold: int[examples].
      score: int[examples], predicted classes -> score, the higher the better.

    Returns:
      Thresholds with the sum 1; all equal: the most probable class is predicted.
    """
    logs = np.log(np.maximum(probabilities, _TINY))
    offsets = np.zeros(logs.shape[1])  # logarithms of the thresholds

    def with_offset(number: int, offset: float) -> np.ndarray:
        return np.where(np.arange(len(offsets)) == number, offset, offsets)

    best = -np.inf
    for _ in range(_MAX_PASSES if len(offsets) > 1 else 0):
        before = best
        for number in range(len(offsets)):
            others = np.delete(logs - offsets, number, axis=1).max(axis=1)
            margins = logs[:, number] - others
            offsets[number], best = best_threshold(
                margins,
                gold == number,
                lambda offset, n=number: score((logs - with_offset(n, offset)).argmax(-1)),
                offsets[number],
                (margins.min() - 1, margins.max() + 1),
            )
        if best <= before:
            break
    thresholds = np.exp(offsets - offsets.max())
    return tuple((thresholds / thresholds.sum()).tolist())


def label_thresholds(probabilities: np.ndarray, gold: np.ndarray) -> tuple[float, ...]:
    """Returns the threshold with the best F1 of each label; without gold examples it is 1/2.

    Args:
      probabilities: float64[examples, labels].
      gold: bool[examples, labels].
    """
    return tuple(
        best_threshold(
            column,
            is_gold,
            lambda threshold, c=column, g=is_gold: _f1(g, c > threshold),
            0.5,
            (column.min() / 2, (column.max() + 1) / 2),
        )[0]
        for column, is_gold in zip(probabilities.T, gold.T, strict=True)
    )


def _f1(gold: np.ndarray, found: np.ndarray) -> float:
    total = gold.sum() + found.sum()
    return 2 * float((gold & found).sum() / total) if total else 0.0
