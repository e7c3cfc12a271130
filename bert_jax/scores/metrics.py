"""How good predictions are: accuracy, F1, correlations, entities; and the spread over seeds.

Gold comes first, predictions second, everywhere. All scores are fractions, and higher is better.
What is undefined, a quotient of nothings, is 0: so scikit-learn and seqeval have it as well.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_TAG = re.compile(r"O|([BIES])(?:-(.*))?", re.DOTALL)
_TOLERANCE = 1e-9  # scores from the same counts may differ by rounding


@dataclass(frozen=True)
class Counts:
    """How many were right, of how many predicted and how many there are. Counts add up."""

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
    """All classes together; its `f1` is the micro-averaged F1."""
    return sum(counts.values(), Counts())


def macro_f1(counts: Mapping[Any, Counts]) -> float:
    """The mean of the classes' F1, of each class that is in the gold or in the predictions."""
    return sum(count.f1 for count in counts.values()) / len(counts) if counts else 0.0


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Share of examples that are right; [examples, classes] (multi-label): right in every class."""
    gold, predicted = _pair(gold, predicted)
    return float((gold == predicted).reshape(len(gold), -1).all(axis=1).mean())


def class_counts(gold: ArrayLike, predicted: ArrayLike) -> dict[Any, Counts]:
    """One class for each example: label -> Counts, sorted by label."""
    gold, predicted = _pair(gold, predicted)
    labels = np.unique(np.concatenate([gold, predicted]))
    return {label.item(): _counts(gold == label, predicted == label) for label in labels}


def multi_label_counts(gold: ArrayLike, predicted: ArrayLike) -> dict[int, Counts]:
    """Any number of classes for each example, bool[examples, classes]: class number -> Counts."""
    gold, predicted = _pair(gold, predicted)
    columns = zip(gold.T.astype(bool), predicted.T.astype(bool), strict=True)
    return {number: _counts(*column) for number, column in enumerate(columns)}


def f1(gold: ArrayLike, predicted: ArrayLike, positive: Hashable = 1) -> float:
    """F1 of one class, the positive one."""
    return class_counts(gold, predicted).get(positive, Counts()).f1


def _counts(gold: np.ndarray, predicted: np.ndarray) -> Counts:
    return Counts(int((gold & predicted).sum()), int(predicted.sum()), int(gold.sum()))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Matthews' correlation coefficient, for any number of classes (Gorodkin, 2004)."""
    gold, predicted = _pair(gold, predicted)
    labels = np.unique(np.concatenate([gold, predicted]))
    true = (gold[:, None] == labels).sum(axis=0).astype(float)
    guessed = (predicted[:, None] == labels).sum(axis=0).astype(float)
    correct, total = float((gold == predicted).sum()), float(len(gold))
    spread = (total**2 - true @ true) * (total**2 - guessed @ guessed)
    return float((correct * total - true @ guessed) / np.sqrt(spread)) if spread else 0.0


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson's correlation; 0 where one side is constant.

    Raises:
      ValueError: a number is not finite.
    """
    gold, predicted = (side.astype(np.float64) for side in _pair(gold, predicted))
    for name, side in (("gold", gold), ("predicted", predicted)):
        if not np.isfinite(side).all():
            raise ValueError(
                f"{np.sum(~np.isfinite(side))} of {len(side)} {name} numbers are not finite:"
                f" there is no correlation."
            )
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(np.clip(_unit(gold) @ _unit(predicted), -1, 1))


def _unit(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean()
    centred /= np.abs(centred).max()  # squares of large numbers do not overflow
    return centred / np.linalg.norm(centred)


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, ties share the mean of theirs."""
    gold, predicted = _pair(gold, predicted)
    if not (np.isfinite(gold).all() and np.isfinite(predicted).all()):
        return pearson(gold, predicted)  # which says so
    return pearson(_ranks(gold), _ranks(predicted))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first word, last word) of each entity of a sentence, as conlleval reads the tags.

    IOB1, IOB2 and IOBES may be mixed, and every sequence means something: an entity begins at B and
    S, after O, E and S, and where the type changes.

    Raises:
      ValueError: a tag is none.
    """
    found, start, previous, kind = set(), 0, "O", ""
    for position, tag in enumerate([*tags, "O"]):
        match = _TAG.fullmatch(tag)
        if match is None:
            raise ValueError(f"{tag!r} is no tag: O, or B-, I-, E- or S- and a type.")
        prefix, next_kind = match[1] or "O", match[2] or "_"
        if previous != "O" and (prefix in "OBS" or previous in "ES" or next_kind != kind):
            found.add((kind, start, position - 1))
            previous = "O"
        if previous == "O":
            start = position
        previous, kind = prefix, next_kind
    return found


def entity_counts(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, Counts]:
    """Entities of sentences of tags: type -> Counts, sorted by type; right is what is equal whole.

    `micro` of it has conlleval's overall precision, recall and F1.

    Raises:
      ValueError: the sentences differ in number or length, or a tag is none.
    """
    counts: dict[str, Counts] = {}
    for gold_tags, predicted_tags in _sentences(gold, predicted):
        true, guessed = entities(gold_tags), entities(predicted_tags)
        for kind, *_ in true | guessed:
            counts.setdefault(kind, Counts())
        for kind in {kind for kind, *_ in true | guessed}:
            counts[kind] += Counts(
                *(sum(k == kind for k, *_ in some) for some in (true & guessed, guessed, true))
            )
    return dict(sorted(counts.items()))


def token_accuracy(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """Share of words whose tag is right, over all sentences."""
    pairs = list(_sentences(gold, predicted))
    return accuracy(
        [tag for tags, _ in pairs for tag in tags], [tag for _, tags in pairs for tag in tags]
    )


def majority_class_score(score: Callable[[Any, Any], float], gold: ArrayLike) -> float:
    """What `score(gold, predicted)` gives for the most frequent answer, given to every example.

    Rows of a multi-label gold are one answer each. Of equally frequent answers the best one counts.
    """
    gold = np.asarray(gold)
    answers, counts = np.unique(gold, axis=0, return_counts=True)
    tied = answers[counts == counts.max(initial=0)]
    if not len(tied):
        raise ValueError("There are no examples: no class is the most frequent one.")
    return max(score(gold, np.broadcast_to(answer, gold.shape)) for answer in tied)


@dataclass(frozen=True)
class SeedSummary:
    """One score over several seeds.

    Attributes:
      standard_deviation: with n - 1; None for a single seed.
      degenerate: how many seeds are no better than the majority class.
    """

    runs: int
    mean: float
    standard_deviation: float | None
    best: float
    degenerate: int


def summarize_seeds(scores: Sequence[float], majority: float) -> SeedSummary:
    """Summarizes the scores of one run a seed; `majority` is `majority_class_score`'s."""
    if not len(scores):
        raise ValueError("There are no runs to summarize.")
    values = np.asarray(scores, np.float64)
    return SeedSummary(
        runs=len(values),
        mean=float(values.mean()),
        standard_deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
        best=float(values.max()),
        degenerate=int((values <= majority + _TOLERANCE).sum()),
    )


def _pair(gold: ArrayLike, predicted: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if gold.shape != predicted.shape:
        raise ValueError(f"gold is {list(gold.shape)}, predictions are {list(predicted.shape)}.")
    if not gold.size:
        raise ValueError("There are no examples to score.")
    return gold, predicted


def _sentences(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> Iterable[tuple[Sequence[str], Sequence[str]]]:
    gold, predicted = list(gold), list(predicted)
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} sentences of gold tags, {len(predicted)} of predictions.")
    for number, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(guessed):
            raise ValueError(
                f"Sentence {number} has {len(true)} gold tags and {len(guessed)} predictions."
            )
        yield true, guessed
