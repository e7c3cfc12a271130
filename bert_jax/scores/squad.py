"""The official scores of SQuAD 1.1 and 2.0, of predictions in memory, in percent.

Written from the definitions of evaluate-v1.1.py and evaluate-v2.0.py, and equal to what they give,
also where that is odd. `gold` maps the id of a question to the texts of its answers, `predictions`
an id to a text, "" for no answer. A question without a prediction scores 0 (where the script of 2.0
ends with a KeyError).
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

Gold = Mapping[str, Sequence[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and additional white space."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def exact(answer: str, predicted: str) -> float:
    """Whether the normalized texts are equal."""
    return float(normalize(answer) == normalize(predicted))


def f1(answer: str, predicted: str, nothings: float = 0.0) -> float:
    """F1 of the normalized texts as bags of words; `nothings` if neither has any."""
    true, guessed = normalize(answer).split(), normalize(predicted).split()
    if not true and not guessed:
        return nothings
    common = (Counter(true) & Counter(guessed)).total()
    if not common:
        return 0.0
    # Divided as the scripts do: thresholds with equal scores must stay equal to the last bit.
    precision, recall = common / len(guessed), common / len(true)
    return 2 * precision * recall / (precision + recall)


def squad_v1(gold: Gold, predictions: Mapping[str, str]) -> dict[str, float]:
    """SQuAD 1.1's `exact_match` and `f1`.

    Raises:
      ValueError: there is no question, or one without an answer.
    """
    _check(gold)
    for key, answers in gold.items():
        if not answers:
            raise ValueError(f"Question {key!r} has no answer: this takes the rules of SQuAD 2.0.")
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
    """SQuAD 2.0's scores, over all questions and for those with and without an answer.

    Args:
      na_probs: how sure it is that a question has no answer, probabilities or, as BERT has them,
        differences of scores. With these the result has the best thresholds too.
      na_prob_threshold: "" is predicted where `na_probs` is greater, whatever `predictions` says.

    Returns:
      `exact`, `f1`, `total`; the same after HasAns_ and NoAns_, where there are such questions;
      with `na_probs` also `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`. A best
      threshold is 0.0 also where none is better than answering nothing at all.

    Raises:
      ValueError: there is no question, or one that is predicted lacks its na_prob.
    """
    _check(gold)
    answered = [key for key in gold if key in predictions]
    if na_probs is not None and (lacking := [key for key in answered if key not in na_probs]):
        raise ValueError(
            f"{len(lacking)} of {len(answered)} predictions have no na_prob, the first of them"
            f" {lacking[0]!r}."
        )
    raw = {"exact": {}, "f1": {}}
    for key in answered:
        # An answer that is nothing but articles and punctuation cannot be hit.
        answers = [answer for answer in gold[key] if normalize(answer)] or [""]
        raw["exact"][key] = max(exact(answer, predictions[key]) for answer in answers)
        raw["f1"][key] = max(f1(answer, predictions[key], nothings=1.0) for answer in answers)

    def with_threshold(key: str, score: float) -> float:
        says_nothing = na_probs is not None and na_probs[key] > na_prob_threshold
        return float(not gold[key]) if says_nothing else score

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
    """The highest score that a threshold gives, and the lowest such threshold.

    From nothing answered on, the questions are answered one by one, the least likely to be without
    an answer first. Of equal na_probs each is a step of its own, in the order of `na_probs`: so the
    official script has it.
    """
    order = [key for key in sorted(na_probs, key=na_probs.__getitem__) if key in scores]
    gains = [scores[key] if gold[key] else -float(predictions[key] != "") for key in order]
    totals = np.cumsum([sum(not gold[key] for key in order), *gains])
    best = int(totals.argmax())
    threshold = float(na_probs[order[best - 1]]) if best else 0.0
    return 100 * float(totals[best]) / len(gold), threshold


def _check(gold: Gold) -> None:
    if not gold:
        raise ValueError("There are no questions to score.")
