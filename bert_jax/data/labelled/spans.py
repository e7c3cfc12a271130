"""Finds the answers of a question from the logits of its windows, as spans of characters."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.data.labelled.encode_questions import Window


@dataclass(frozen=True, slots=True)
class Span:
    """An answer.

    Attributes:
      text: context[start:stop].
      start, stop: its range of characters in the context.
      score: the sum of the start logit of its first token and the end logit of its last.
    """

    text: str
    start: int
    stop: int
    score: float


@dataclass(frozen=True)
class Answers:
    """The answers that the model gives to a question.

    Attributes:
      spans: distinct texts, the best first; empty if no span is allowed.
      null_score: the score of no answer, the smallest sum of [CLS]'s start and end logits over all
        windows, since every window must be without an answer.
    """

    spans: tuple[Span, ...]
    null_score: float

    @property
    def null_odds(self) -> float:
        """The score of no answer minus that of the best answer."""
        return self.null_score - self.spans[0].score if self.spans else math.inf

    def text(self, null_threshold: float = math.inf) -> str:
        """Returns the best answer; "" if there is none or `null_odds` is above the threshold."""
        return "" if not self.spans or self.null_odds > null_threshold else self.spans[0].text

    def n_best(self, with_null: bool) -> list[tuple[str, float, float, Span | None]]:
        """Returns the answers, the best first: (text, probability, score, span).

        Args:
          with_null: whether to include no answer, "".
        """
        answers: list[tuple[str, float, Span | None]] = [(s.text, s.score, s) for s in self.spans]
        if with_null or not answers:
            answers.append(("", self.null_score, None))
        answers.sort(key=lambda answer: -answer[1])
        weights = np.exp(np.array([score for _, score, _ in answers]) - answers[0][1])
        probabilities = (weights / weights.sum()).tolist()
        return [
            (text, probability, score, span)
            for (text, score, span), probability in zip(answers, probabilities, strict=True)
        ]


def choose_spans(
    context: str,
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    max_answer_length: int,
    n_best: int,
) -> Answers:
    """Returns the best answers of all spans, not only of the n best starts and n best ends.

    As in `run_squad.py`, a span begins at a token that has the most context in its window, ends at
    or after it, and has at most `max_answer_length` tokens.

    Args:
      context: the question's context.
      windows: all windows of the question (`QuestionRows.windows`).
      start_logits, end_logits: float[length] of each window's row.
      max_answer_length: maximum number of tokens of an answer.
      n_best: maximum number of answers.
    """
    starts = [np.asarray(logits, np.float64) for logits in start_logits]
    ends = [np.asarray(logits, np.float64) for logits in end_logits]
    rows = list(zip(windows, starts, ends, strict=True))
    null_score = min(float(start[0] + end[0]) for _, start, end in rows)
    scores = [_scores(*row, max_answer_length) for row in rows]
    every = np.concatenate([part.ravel() for part in scores])
    first_of = np.cumsum([0, *(part.size for part in scores)])
    best: dict[str, Span] = {}
    for place in np.argsort(-every, kind="stable"):
        if len(best) == n_best or every[place] == -np.inf:
            break
        number = int(np.searchsorted(first_of, place, "right")) - 1
        window = windows[number]
        token, more = divmod(int(place - first_of[number]), scores[number].shape[1])
        start = int(window.spans[token, 0])
        stop = int(window.spans[token + more, 1])
        # Combining marks belong to the token before, and no token has them.
        while stop < len(context) and unicodedata.category(context[stop]) == "Mn":
            stop += 1
        at = window.first + token
        score = float(starts[number][at]) + float(ends[number][at + more])
        if text := context[start:stop]:
            best.setdefault(text, Span(text, start, stop, score))
    return Answers(tuple(best.values()), null_score)


def _scores(
    window: Window, start_logits: np.ndarray, end_logits: np.ndarray, max_answer_length: int
) -> np.ndarray:
    """Returns float64[tokens, lengths], the score of each span by first token and length - 1.

    It is -inf where there is no such span.
    """
    num_tokens = len(window.spans)
    here = slice(window.first, window.first + num_tokens)
    more = np.arange(min(max_answer_length, max(num_tokens, 1)))
    ends = np.pad(end_logits[here], (0, len(more)), constant_values=-np.inf)
    spans = start_logits[here, None] + ends[np.arange(num_tokens)[:, None] + more]
    return np.where(window.is_max_context[:, None], spans, -np.inf)
