"""How often a model prefers the acceptable sentence of a minimal pair."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

_RESAMPLES = 1000
# Possible scores of a pair: 0 (the wrong sentence is preferred), a tie, 1.
_VALUES = np.array([0.0, 0.5, 1.0])


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A mean accuracy, from 0 to 1, with its bootstrap standard deviation."""

    value: float
    error: float
    pairs: int

    def __str__(self) -> str:
        return f"{100 * self.value:5.1f} % ± {100 * self.error:.1f}"


@dataclasses.dataclass(frozen=True)
class PairScores:
    """Accuracies on a suite of minimal pairs.

    Attributes:
      paradigms: the accuracy of each paradigm, in the order of the suite.
      fields: the mean over the paradigms of a field; {} without fields.
      mean: the mean over the paradigms.
      ties: number of pairs with equal scores, each of which counts one half.
    """

    paradigms: Mapping[str, Accuracy]
    fields: Mapping[str, Accuracy]
    mean: Accuracy
    ties: int


def score_pairs(
    good: np.ndarray, bad: np.ndarray, paradigms: Sequence[str], fields: Sequence[str]
) -> PairScores:
    """Returns the accuracies; in each pair, the sentence with the higher score is preferred.

    Errors are standard deviations over 1,000 bootstrap resamples of the pairs of each paradigm,
    drawn with one seed.

    Args:
      good, bad: float64[pairs] scores of the sentences, such as log-likelihoods.
      paradigms: the paradigm of each pair.
      fields: the field of each pair; "": it has none.
    """
    outcomes = np.sign(np.asarray(good, np.float64) - np.asarray(bad, np.float64)) / 2 + 0.5
    rng = np.random.default_rng(0)
    values: dict[str, float] = {}
    resampled: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for paradigm, places in _places(paradigms).items():
        found = outcomes[places]
        shares = [(found == value).mean() for value in _VALUES]
        drawn = rng.multinomial(len(found), shares, _RESAMPLES)
        values[paradigm], counts[paradigm] = float(found.mean()), len(found)
        resampled[paradigm] = drawn @ _VALUES / len(found)

    def mean(names: Sequence[str]) -> Accuracy:
        together = np.mean([resampled[name] for name in names], axis=0)
        value = float(np.mean([values[name] for name in names]))
        return Accuracy(value, float(together.std()), sum(counts[name] for name in names))

    groups: dict[str, list[str]] = {}
    for paradigm, field in dict(zip(paradigms, fields, strict=True)).items():
        groups.setdefault(field, []).append(paradigm)
    return PairScores(
        paradigms={name: mean([name]) for name in values},
        fields={name: mean(names) for name, names in groups.items() if name},
        mean=mean([*values]),
        ties=int((outcomes == 0.5).sum()),
    )


def _places(names: Sequence[Hashable]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(str(name), []).append(place)
    return found
