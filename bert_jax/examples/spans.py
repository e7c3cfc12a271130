"""From the logits of a question's windows to its answers, in the characters of the context."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.examples.encode_questions import Window


@dataclass(frozen=True, slots=True)
class Span:
    """An answer.

    Attributes:
      text: context[start:stop].
      start, stop: its characters.
      start_logit, end_logit: of its first and its last token.
    """

    text: str
    start: int
    stop: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class Answers:
    """What the model says about a question.

    Attributes:
      spans: different texts, the best first; empty where nothing can be an answer.
      null_score: of no answer, the smallest over all windows of [CLS]'s start and end logit: there
        is no answer only if no window has one.
    """

    spans: tuple[Span, ...]
    null_score: float

    @property
    def null_odds(self) -> float:
        """How much more the score of no answer is than the best answer's."""
        return self.null_score - self.spans[0].score if self.spans else math.inf

    def text(self, null_threshold: float = math.inf) -> str:
        """The best answer, or "" where there is none or `null_odds` is above the threshold."""
        return "" if not self.spans or self.null_odds > null_threshold else self.spans[0].text

    def n_best(self, with_null: bool) -> list[tuple[str, float, float, Span | None]]:
        """The answers, the best first: (text, probability, score, where it is).

        Args:
          with_null: whether no answer, "", is among them.
        """
        found: list[tuple[str, float, Span | None]] = [(s.text, s.score, s) for s in self.spans]
        if with_null or not found:
            found.append(("", self.null_score, None))
        found.sort(key=lambda answer: -answer[1])
        weights = np.exp(np.array([score for _, score, _ in found]) - found[0][1])
        shares = (weights / weights.sum()).tolist()
        return [
            (text, p, score, span) for (text, score, span), p in zip(found, shares, strict=True)
        ]


def choose_spans(
    context: str,
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    max_answer_length: int,
    n_best: int,
) -> Answers:
    """Finds the best answers: of all spans, not of the n best starts and n best ends only.

    A span begins at a token that its window shows with most context, ends at or after it, and is no
    longer than allowed (`run_squad.py`).

    Args:
      context: of the question.
      windows: all of the question, `QuestionRows.windows`.
      start_logits, end_logits: float[length] of each window's row.
      max_answer_length: in tokens.
      n_best: most answers.

    Raises:
      ValueError: `max_answer_length` or `n_best` is not positive.
    """
    for name, value in (("max_answer_length", max_answer_length), ("n_best", n_best)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1.")
    starts = [np.asarray(logits, np.float64) for logits in start_logits]
    ends = [np.asarray(logits, np.float64) for logits in end_logits]
    null_score = min(float(start[0] + end[0]) for start, end in zip(starts, ends, strict=True))
    scores = [
        _scores(window, start, end, max_answer_length)
        for window, start, end in zip(windows, starts, ends, strict=True)
    ]
    every = np.concatenate([part.ravel() for part in scores])
    first_of = np.cumsum([0, *(part.size for part in scores)])
    found: dict[str, Span] = {}
    for place in np.argsort(-every, kind="stable"):
        if len(found) == n_best or every[place] == -np.inf:
            break
        number = int(np.searchsorted(first_of, place, "right")) - 1
        window = windows[number]
        token, more = divmod(int(place - first_of[number]), scores[number].shape[1])
        start = int(window.spans[token, 0])
        stop = _whole(context, int(window.spans[token + more, 1]))
        at = window.first + token
        logits = float(starts[number][at]), float(ends[number][at + more])
        if text := context[start:stop]:
            found.setdefault(text, Span(text, start, stop, *logits))
    return Answers(tuple(found.values()), null_score)


def _scores(
    window: Window, start_logits: np.ndarray, end_logits: np.ndarray, max_answer_length: int
) -> np.ndarray:
    """float64[tokens, lengths] of the span that begins at a token and has so many more.

    -inf where there is no such span.
    """
    num_tokens = len(window.spans)
    here = slice(window.first, window.first + num_tokens)
    more = np.arange(min(max_answer_length, max(num_tokens, 1)))
    ends = np.pad(end_logits[here], (0, len(more)), constant_values=-np.inf)
    spans = start_logits[here, None] + ends[np.arange(num_tokens)[:, None] + more]
    return np.where(window.is_max_context[:, None], spans, -np.inf)


def _whole(context: str, stop: int) -> int:
    """The end of a token with the accents that follow it, which no token has."""
    while stop < len(context) and unicodedata.category(context[stop]) == "Mn":
        stop += 1
    return stop
