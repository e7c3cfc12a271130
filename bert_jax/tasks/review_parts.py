"""What a reader of an evaluation wants to see: confusions, calibration, and the worst errors.

A review is a small JSON object, whatever the number of examples, with those of these parts that
apply to the task:

    examples      their number
    classes       name -> [correct, predicted, gold]
    confusion     counts [gold][predicted], in the order of `classes`
    values        pairs [gold, predicted] of numbers
    calibration   [mean probability of the answers, share of correct ones, number] for each bin
    wrong         the number of examples with an error
    errors        the worst of them: `id`, `gold`, `predicted`, `probability` of the wrong answer
                  where there is one, and `texts`: `name`, `text`, and `spans` [start, stop, what,
                  label] in characters, `what` being gold, predicted or both
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bert_jax.scores.classification import Counts

MAX_ERRORS = 30
_MAX_CHARACTERS = 600  # of a text
_MAX_VALUES = 500


def confusion(gold: ArrayLike, predicted: ArrayLike, size: int) -> list[list[int]]:
    """Returns the counts [gold][predicted] of class numbers below `size`."""
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (np.asarray(gold, int), np.asarray(predicted, int)), 1)
    return counts.tolist()


def class_rows(counts: Mapping[Any, Counts]) -> dict[str, list[int]]:
    """Returns `classes` of a review."""
    return {str(k): [count.correct, count.predicted, count.gold] for k, count in counts.items()}


def spread_values(gold: ArrayLike, predicted: ArrayLike) -> list[list[float]]:
    """Returns `values` of a review, for at most 500 evenly spaced examples."""
    pairs = np.stack([np.asarray(gold, float), np.asarray(predicted, float)], axis=1).tolist()
    return pairs[:: max(1, -(-len(pairs) // _MAX_VALUES))]


def error(
    id: str,
    gold: str,
    predicted: str,
    texts: Iterable[dict[str, Any] | None],
    probability: float | None = None,
) -> dict[str, Any]:
    """Returns one of `errors`; Nones in `texts` are left out."""
    found = {"id": id, "gold": gold, "predicted": predicted, "texts": [t for t in texts if t]}
    return found if probability is None else found | {"probability": float(probability)}


def text(
    name: str, content: str | None, spans: Sequence[tuple[int, int, str, str]] = ()
) -> dict[str, Any] | None:
    """Returns one of `texts`, cut around its spans if it is long; None without a text."""
    if content is None:
        return None
    low = min((start for start, *_ in spans), default=0)
    high = max((stop for _, stop, *_ in spans), default=0)
    first = max(0, min(low - 100, (low + high - _MAX_CHARACTERS) // 2))
    last = max(first + _MAX_CHARACTERS, min(high + 100, first + 2 * _MAX_CHARACTERS))
    before, after = "…" if first else "", "…" if last < len(content) else ""
    move = len(before) - first
    kept = [
        [max(start, first) + move, min(stop, last) + move, what, label]
        for start, stop, what, label in spans
        if start < last
    ]
    return {"name": name, "text": before + content[first:last] + after, "spans": kept}


def marked(
    gold: Iterable[tuple[int, int, str]], predicted: Iterable[tuple[int, int, str]]
) -> list[tuple[int, int, str, str]]:
    """Returns the spans (start, stop, what, label) of gold and predicted ones, in order."""
    true, found = set(gold), set(predicted)
    names = {True: "both"}
    return sorted(
        (start, stop, names.get((start, stop, label) in true & found, side), label)
        for side, spans in (("gold", true), ("predicted", found - true))
        for start, stop, label in spans
    )
