"""Encodes questions with their contexts: [CLS] question [SEP] a window of the context [SEP].

As in `run_squad.py`, windows of a context begin a stride apart, an answer that is not entirely in a
window is absent there (position 0, [CLS]), and a token in several windows counts in the one where
it has the most context. Answers are mapped to tokens by characters.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import Question
from bert_jax.data.labelled.sequences import (
    EncodedRows,
    SequenceWriter,
    flat,
    max_context_windows,
    unpack_runs,
)
from bert_jax.text.tokenization import Tokenizer


@dataclass(frozen=True)
class Window:
    """The part of a context that a row holds.

    Attributes:
      row: number of the row.
      first: position in the row of the first token of the context.
      spans: int32[tokens, 2], the characters [start, stop) of the context of each token.
      is_max_context: bool[tokens], whether no window shows the token with more context.
    """

    row: int
    first: int
    spans: np.ndarray
    is_max_context: np.ndarray


@dataclass(frozen=True, kw_only=True)
class QuestionRows(EncodedRows):
    """A row is a question and a window of its context.

    Attributes:
      window_starts: int32[rows], the token of the context that a row's window begins with.
      start_positions, end_positions: int32[rows], first and last token of the answer; 0: none here.
      fields: `weights`, float32[rows], 0 where the answer is not known.
      example_starts: int64[examples + 1], each example's first row.
      contexts: int32[examples], the number of each question's context.
      context_starts: int64[contexts + 1], each context's first token in `spans`.
      spans: int32[tokens, 2], the characters of the tokens of all contexts.
    """

    window_starts: np.ndarray
    start_positions: np.ndarray
    end_positions: np.ndarray
    example_starts: np.ndarray
    contexts: np.ndarray
    context_starts: np.ndarray
    spans: np.ndarray

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Adds int32 `start_positions` and `end_positions` and float32 `weights`.

        They have the shape of `row_numbers`; positions count from the beginning of the batch's row.
        """
        batch = super().take(row_numbers, length)
        begins, is_row = batch["cls_positions"].reshape(row_numbers.shape), row_numbers >= 0
        return batch | {
            "start_positions": np.where(is_row, self.start_positions[row_numbers], 0) + begins,
            "end_positions": np.where(is_row, self.end_positions[row_numbers], 0) + begins,
        }

    def unpack(self, row_numbers: np.ndarray, answers: Batch) -> tuple[np.ndarray, Batch]:
        """Splits answers [batch, seq], one for each token."""
        is_row, counts = row_numbers >= 0, self.lengths[row_numbers]
        width = int(counts[is_row].max(initial=1))
        return row_numbers[is_row], {
            name: unpack_runs(array, is_row, counts, width) for name, array in answers.items()
        }

    def windows(self, example: int) -> list[Window]:
        """Returns the windows of an example, in the order of its context."""
        rows = range(*self.example_starts[example : example + 2].tolist())
        firsts = self.sequences.first_lengths[rows.start : rows.stop]
        starts = self.window_starts[rows.start : rows.stop]
        sizes = self.lengths[rows.start : rows.stop] - firsts - 1
        context = self.contexts[example]
        spans = self.spans[self.context_starts[context] : self.context_starts[context + 1]]
        best = max_context_windows(np.arange(len(spans)), starts, starts + sizes)
        return [
            Window(row, int(first), spans[here := slice(start, start + size)], best[here] == number)
            for number, (row, first, start, size) in enumerate(
                zip(rows, firsts, starts.tolist(), sizes.tolist(), strict=True)
            )
        ]


def encode_questions(
    examples: Iterable[Question],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    doc_stride: int,
    max_query_length: int,
    counts: Counter,
) -> QuestionRows:
    """Encodes questions.

    Args:
      examples: read once. Successive questions about a context encode it once.
      tokenizer: any.
      max_sequence_length: maximum number of tokens of a row; at least a quarter of them are for the
        context.
      doc_stride: tokens from the beginning of a window to that of the next.
      max_query_length: maximum number of tokens of a question; longer ones are truncated.
      counts: updated with `questions_truncated`, `tokens_cut_off`, `questions_of_several_rows`,
        `questions_not_learned` (no answer is at its offset, or it has no token: their weight is 0)
        and `answers_in_no_window` (too long for every window: trained as absent).

    Raises:
      UserError: there are no examples.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length)
    longest_query = min(max_query_length, 3 * max_sequence_length // 4 - 3)
    window_starts, example, example_starts = array("i"), array("i"), array("q", [0])
    answers, weights, contexts = array("i"), array("f"), array("i")
    spans: list[np.ndarray] = []  # of each context
    for context, questions in groupby(examples, lambda question: question.context):
        ids = tokenizer.encode(context)
        spans.append(np.array(tokenizer.character_spans(context), np.int32).reshape(-1, 2))
        for question in questions:
            query = tokenizer.encode(question.question)
            counts["questions_truncated"] += len(query) > longest_query
            counts["tokens_cut_off"] += max(0, len(query) - longest_query)
            query = query[:longest_query]
            answer = _answer(question, spans[-1])
            is_known = question.is_impossible or answer is not None
            counts["questions_not_learned"] += bool(question.answers) and not is_known
            windows = _windows(len(ids), writer.room_of_pair - len(query), doc_stride)
            places = [
                _place(answer, window, first=len(query) + 1 + tokenizer.num_separators)
                for window in windows
            ]
            for window, place in zip(windows, places, strict=True):
                writer.add(query, ids[window.start : window.stop])
                window_starts.append(window.start)
                answers.extend(place)
            counts["questions_of_several_rows"] += len(windows) > 1
            counts["answers_in_no_window"] += answer is not None and not any(map(any, places))
            weights.extend([is_known] * len(windows))
            example.extend([len(contexts)] * len(windows))
            contexts.append(len(spans) - 1)
            example_starts.append(len(writer))
    sequences, positions = writer.finish(), flat(answers).reshape(-1, 2)
    return QuestionRows(
        sequences=sequences,
        example=flat(example),
        fields={"weights": flat(weights)},
        window_starts=flat(window_starts),
        start_positions=positions[:, 0],
        end_positions=positions[:, 1],
        example_starts=flat(example_starts),
        contexts=flat(contexts),
        context_starts=np.cumsum([0, *map(len, spans)]),
        spans=np.concatenate(spans),
    )


def _windows(num_tokens: int, room: int, doc_stride: int) -> list[range]:
    """Returns the windows of a context; at least one, even without tokens."""
    windows = [range(min(room, num_tokens))]
    while windows[-1].stop < num_tokens:
        start = windows[-1].start + min(doc_stride, room)
        windows.append(range(start, min(start + room, num_tokens)))
    return windows


def _answer(question: Question, spans: np.ndarray) -> tuple[int, int] | None:
    """Returns first and last token of the first answer that is at its offset, if there is one."""
    for text, start in () if question.is_impossible else question.answers:
        # The tokens that have a character of the answer. (SentencePiece has some without any.)
        first, stop = np.maximum(spans[:, 0], start), np.minimum(spans[:, 1], start + len(text))
        tokens = np.flatnonzero(first < stop)
        if start >= 0 and len(tokens):
            return int(tokens[0]), int(tokens[-1])
    return None


def _place(answer: tuple[int, int] | None, window: range, first: int) -> tuple[int, int]:
    """Returns the positions of an answer in a row; 0 if it is not entirely in the window."""
    if answer is None or answer[0] not in window or answer[1] not in window:
        return 0, 0
    shift = first - window.start
    return answer[0] + shift, answer[1] + shift
