"""The scores of CMRC 2018: exact match, and F1 of the longest common run of segments.

It follows the definition of cmrc2018_evaluate.py, version 5. A segment is a Chinese character, or
a word of the text between two. For words, that script uses nltk's tokenizer; the rule here differs
for dots within a run, which nltk may take for the end of a sentence, and for rare forms such as
"gonna". It is applied to gold answers and predictions alike.
"""

import difflib
import re
from collections.abc import Mapping, Sequence

from bert_jax.files.errors import UserError

# Ignored characters: exactly this list. ASCII's full stop and comma, for example, do count.
_IGNORED = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_RUNS = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")
# Words of the Penn Treebank: opening and closing quotes differ, 1,000 and U.S. are one word, and
# the last full stop is a word.
_OPENING = re.compile(r'(?:^|(?<=[\s(\[{<]))"')
_MARKS = re.compile(
    r""" `` | \.{2,} | [;@\#$%&?!()\[\]{}<>"«»‘„\u2012-\u2015] | ,(?!\d)
       | (?<=[^.])\.(?=[\])}>"'»\s]*$) | (?<!\w)'(?=\w)(?!(?:s|m|d|t|n|ll|re|ve)\b) """,
    re.VERBOSE,
)
_CLITICS = re.compile(r"(?<=[^'\s])(?:'(?:s|m|d|ll|re|ve)?|n't)(?!\S)")


def segments(text: str) -> list[str]:
    """Returns Chinese characters and words, in lower case, without ignored characters."""
    words = []
    for run in _RUNS.findall(_clean(text)):
        spaced = _MARKS.sub(r" \g<0> ", _OPENING.sub("``", run))
        words += _CLITICS.sub(r" \g<0>", spaced).split()
    return words


def _clean(text: str) -> str:
    return text.lower().strip().translate(_IGNORED)


def exact(answer: str, predicted: str) -> float:
    """Returns 1 if the texts are equal up to case and ignored characters, else 0."""
    return float(_clean(answer) == _clean(predicted))


def f1(answer: str, predicted: str) -> float:
    """Returns the F1 of the longest common run of segments."""
    true, guessed = segments(answer), segments(predicted)
    matcher = difflib.SequenceMatcher(None, true, guessed, autojunk=False)
    common = matcher.find_longest_match().size
    return 2 * common / (len(true) + len(guessed)) if common else 0.0


def cmrc2018(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns the scores of CMRC 2018 in percent; the best of the gold answers counts.

    Args:
      gold: id of a question -> texts of its answers.
      predictions: id -> text. A question without one scores 0.

    Returns:
      `AVERAGE` (of the next two), `F1`, `EM`; `TOTAL` questions, `SKIP` without a prediction.

    Raises:
      UserError: there is no question, or one without an answer.
    """
    if not gold:
        raise UserError("There are no questions to score.")
    for key, answers in gold.items():
        if not answers:
            raise UserError(f"Question {key!r} has no answer, which CMRC 2018 requires.")
    answered = [key for key in gold if key in predictions]
    totals = [
        100
        / len(gold)
        * sum(max(score(a, predictions[key]) for a in gold[key]) for key in answered)
        for score in (f1, exact)
    ]
    return {
        "AVERAGE": sum(totals) / 2,
        "F1": totals[0],
        "EM": totals[1],
        "TOTAL": len(gold),
        "SKIP": len(gold) - len(answered),
    }
