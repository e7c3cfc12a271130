"""How well a language model knows grammar, measured on minimal pairs, without training.

The sentence with the higher score is the one that the model prefers: the pseudo-log-likelihood of a
masked language model (Salazar et al. 2020), or the log-likelihood. Scores are sums over tokens, in
float32 probabilities, and exact (`predictor`): they do not depend on batches, order or devices, so
equal scores mean that the model sees no difference.
"""

import dataclasses
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_jax.data.labelled.texts import Text
from bert_jax.data.minimal_pairs import MinimalPair, check_scored, read_pairs
from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.scoring import Scorer
from bert_jax.scores.language_model import METHODS
from bert_jax.scores.minimal_pairs import PairScores, score_pairs

# Positions of a batch: with fewer, small models wait for their programs.
_BATCH_TOKENS = 2048
# What pairs are grouped by.
_GROUPS = ("paradigm", "field")
# Model -> method -> scorer.
_SCORERS: weakref.WeakKeyDictionary[TrainedModel, dict[str, Scorer]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class SuiteResult:
    """The scores of a suite.

    Attributes:
      pairs: the pairs.
      good, bad: float64[pairs] (pseudo-)log-likelihoods in nats.
      scores: the accuracies.
      unknown: share of tokens that the vocabulary lacks; pairs that differ only in these are ties.
    """

    pairs: list[MinimalPair]
    good: np.ndarray
    bad: np.ndarray
    scores: PairScores
    unknown: float

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields the pairs with the scores of both sentences."""
        for pair, good, bad in zip(self.pairs, self.good, self.bad, strict=True):
            scores = {"good_score": float(good), "bad_score": float(bad)}
            yield dataclasses.asdict(pair) | scores


def score_suite(
    model: TrainedModel,
    suite: str,
    method: str = "",
    per_paradigm: int = 0,
    done: Callable[[int, int], None] | None = None,
) -> SuiteResult:
    """Returns the scores of the pairs of a suite.

    Args:
      model: predicts masked or next tokens.
      suite: see `data.minimal_pairs.read_pairs`.
      method: "" for the (pseudo-)log-likelihood, "within_words" for its variant of Kauf & Ivanova
        2023, which masks the later pieces of a word too, "next_tokens" for the log-likelihood of a
        model that was trained on both objectives.
      per_paradigm: number of pairs per paradigm, evenly spaced; 0: all.
      done: called with the numbers of finished and of all passes through the model.

    Raises:
      UserError: there is no such suite or method; the model has no trained head for that, or too
        few positions; or it gives no token of a sentence a probability.
    """
    if method not in METHODS:
        raise UserError(f"method={method!r} must be one of {', '.join(map(repr, METHODS))}.")
    pairs = read_pairs(suite, per_paradigm)
    # Suites repeat sentences; each is scored once.
    sentences = (sentence for pair in pairs for sentence in (pair.good, pair.bad))
    numbers = {sentence: n for n, sentence in enumerate(dict.fromkeys(sentences))}
    scorer = _scorer(model, method)
    rows = [scorer.row(Text(sentence, where=f"A sentence of {suite}")) for sentence in numbers]
    for sentence, row in zip(numbers, rows, strict=True):
        check_scored(suite, sentence, scorer.count_scored(row))
    passes, finished = sum(map(scorer.count_passes, rows)), 0

    def add(count: int) -> None:
        nonlocal finished
        finished += count
        if done:
            done(finished, passes)

    totals = np.fromiter(scorer.totals(rows, add), np.float64, len(rows))
    good, bad = (
        totals[[numbers[getattr(pair, side)] for pair in pairs]] for side in ("good", "bad")
    )
    ids = np.concatenate([row.input_ids[row.word_positions] for row in rows])
    return SuiteResult(
        pairs,
        good,
        bad,
        score_pairs(good, bad, *([getattr(p, n) for p in pairs] for n in _GROUPS)),
        model.tokenizer.count_unknown(ids.tolist()) / len(ids),
    )


def _scorer(model: TrainedModel, method: str) -> Scorer:
    """Returns the scorer of a model; it is cached, with its compiled functions, with the model."""
    if method not in (made := _SCORERS.setdefault(model, {})):
        predictor = Predictor(dataclasses.replace(model, exact=True), _BATCH_TOKENS)
        made[method] = Scorer(predictor, method)
    return made[method]


def evaluate_suite(
    model: Any, suite: str | os.PathLike[str], method: str = "", per_paradigm: int = 0
) -> SuiteResult:
    """Returns how often a model prefers the acceptable sentence in the pairs of a suite.

    Args:
      model: a model that predicts masked or next tokens.
      suite: "blimp", "zorro", a file or a folder (`data.minimal_pairs`).
      method, per_paradigm: see `score_suite`.

    Raises:
      UserError: there is no such suite, or the model predicts no tokens.

    >>> result = bert_jax.evaluate_suite(model, "zorro", per_paradigm=100)
    >>> result.scores.mean.value
    0.72
    """
    return score_suite(model, os.fspath(suite), method, per_paradigm)
