"""The official scores of SQuAD 1.1 and 2.0, in percent.

Written from the definitions of evaluate-v1.1.py and evaluate-v2.0.py, with the same results in all
special cases. `gold` maps the id of a question to the texts of its answers, `predictions`
an id to a text, "" for no answer. A question without a prediction scores 0 (where the script of 2.0
ends with a KeyError).
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.files.errors import UserError

Gold = Mapping[str, Sequence[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Returns a text in lower case, without ASCII punctuation, articles and extra white space."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def exact(answer: str, predicted: str) -> float:
    """Returns 1 if the normalized texts are equal, else 0."""
    return float(normalize(answer) == normalize(predicted))


def f1(answer: str, predicted: str, if_empty: float = 0.0) -> float:
    """Returns the F1 of the normalized texts as bags of words; `if_empty` if neither has words."""
    true, guessed = normalize(answer).split(), normalize(predicted).split()
    if not true and not guessed:
        return if_empty
    common = (Counter(true) & Counter(guessed)).total()
    if not common:
        return 0.0
    # Divided as the scripts do: thresholds with equal scores must stay equal to the last bit.
    precision, recall = common / len(guessed), common / len(true)
    return 2 * precision * recall / (precision + recall)


def squad_v1(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1.

    Raises:
      UserError: there is no question, or one without an answer.
    """
    _check(gold)
    for key, answers in gold.items():
        if not answers:
            raise UserError(f"Question {key!r} has no answer: use the rules of SQuAD 2.0.")
    sums = np.zeros(2)
    for key in gold.keys() & predictions.keys():
        sums[0] += max(exact(answer, predictions[key]) for answer in gold[key])
        sums[1] += max(f1(answer, predictions[key]) for answer in gold[key])
    exact_match, f1_mean = (100 * sums / len(gold)).tolist()
    return {"exact_match": exact_match, "f1": f1_mean}


def squad_v2(
    gold: Gold,
    predictions: Mapping[str, str],
    na_probs: Mapping[str, float] | None = None,
    na_prob_threshold: float = 1.0,
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0, for all questions and for those with and without an answer.

    Args:
      gold: id of a question -> texts of its answers.
      predictions: id -> text; "" is no answer.
      na_probs: id -> score of no answer: a probability or, as in BERT, a difference of scores.
        If given, the result also has the best thresholds.
      na_prob_threshold: where `na_probs` is greater, the prediction is "".

    Returns:
      `exact`, `f1`, `total`; the same after HasAns_ and NoAns_, where there are such questions;
      with `na_probs` also `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`. A best
      threshold is also 0.0 if leaving every question unanswered is best.

    Raises:
      UserError: there is no question, or one that is predicted lacks its na_prob.
    """
    _check(gold)
    answered = [key for key in gold if key in predictions]
    if na_probs is not None and (lacking := [key for key in answered if key not in na_probs]):
        raise UserError(
            f"{len(lacking)} of {len(answered)} predictions have no na_prob, the first of them"
            f" {lacking[0]!r}."
        )
    raw = {"exact": {}, "f1": {}}
    for key in answered:
        # An answer of articles and punctuation only cannot be matched.
        answers = [answer for answer in gold[key] if normalize(answer)] or [""]
        raw["exact"][key] = max(exact(answer, predictions[key]) for answer in answers)
        raw["f1"][key] = max(f1(answer, predictions[key], if_empty=1.0) for answer in answers)

    def with_threshold(key: str, score: float) -> float:
        is_unanswered = na_probs is not None and na_probs[key] > na_prob_threshold
        return float(not gold[key]) if is_unanswered else score

    groups = {
        "": list(gold),
        "HasAns_": [key for key in gold if gold[key]],
        "NoAns_": [key for key in gold if not gold[key]],
    }
    result: dict[str, float] = {}
    for prefix, keys in groups.items():
        if not keys:
            continue
        for name, scores in raw.items():
            total = sum(with_threshold(key, scores[key]) for key in keys if key in scores)
            result[prefix + name] = 100 * total / len(keys)
        result[prefix + "total"] = len(keys)
    if na_probs is not None:
        for name, scores in raw.items():
            best, threshold = _best_threshold(gold, predictions, scores, na_probs)
            result |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return result


def _best_threshold(
    gold: Gold,
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    na_probs: Mapping[str, float],
) -> tuple[float, float]:
    """Returns the highest score of all thresholds, and the lowest such threshold.

    Starting with no question answered, the threshold is raised by one question at a time, by
    ascending na_prob.
    As in the official script, equal na_probs are separate steps, in the order of `na_probs`.
    """
    order = [key for key in sorted(na_probs, key=na_probs.__getitem__) if key in scores]
    gains = [scores[key] if gold[key] else -float(predictions[key] != "") for key in order]
    totals = np.cumsum([sum(not gold[key] for key in order), *gains])
    best = int(totals.argmax())
    threshold = float(na_probs[order[best - 1]]) if best else 0.0
    return 100 * float(totals[best]) / len(gold), threshold


def _check(gold: Gold) -> None:
    if not gold:
        raise UserError("There are no questions to score.")
