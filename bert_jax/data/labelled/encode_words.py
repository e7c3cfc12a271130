"""Encodes sentences of words for tagging: a word is predicted at its first or all of its pieces.

A sentence that does not fit in a row is covered by overlapping windows, and each of its words is
predicted in the one where it has the most context (`max_context_windows`); predictions may also
take the mean over all windows that show a word (`words_of`). With document context (paper, section
5.3: "the maximal document context provided by the data"), the rest of a row is filled with words of
the sentences before and after it in the same document, which are not predicted there.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, count, groupby, islice, pairwise
from typing import Any, TypeVar

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import Labels, TaggedExample
from bert_jax.data.labelled.sequences import (
    EncodedRows,
    SequenceWriter,
    flat,
    max_context_windows,
    unpack_runs,
)
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

# A longer document is read in parts of this many sentences, in bounded memory.
_LONGEST_DOCUMENT = 1024
# The word dimension of batches is one of these.
_WIDTHS = (16, 32, 64, 128, 256, 512)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WordRows(EncodedRows):
    """Words are numbered over all examples; a row has some words of its sentence, in order.

    Attributes:
      starts: int64[rows + 1], where each row begins in `positions` and `is_predicted`.
      positions: int32[words of rows], position of a word's first piece in the row.
      sizes: int32[words of rows], pieces of the word in the row; None: not needed.
      is_predicted: bool[words of rows], whether this row predicts the word.
      first_words: int64[rows], the number of each row's first word.
      labels: int32[words].
      weights: float32[words], 0 where there is no gold label.
      example_starts: int64[examples + 1], the number of each example's first word.
    """

    starts: np.ndarray
    positions: np.ndarray
    sizes: np.ndarray | None
    is_predicted: np.ndarray
    first_words: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    example_starts: np.ndarray

    @cached_property
    def width(self) -> int:
        """The word dimension of batches, one for the data set; at most the length of the batch."""
        max_pieces = int(np.diff(self.starts).max())
        return next((width for width in _WIDTHS if width >= max_pieces), max_pieces)

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Adds arrays [batch, words], where `words` is the smaller of `length` and `width`, or with
        `exact` `length`.

        int32 `word_positions` and `labels`, bool `is_word` (words first) and float32 `weights`, 1
        for the words that the row predicts and that have a gold label; with `sizes` also int32
        `word_sizes`. A batch of packed rows has the words of all its rows in order, with `words`
        equal to `length`.
        """
        batch = super().take(row_numbers, length)
        at, is_word, words, column = self._words(row_numbers, length)
        begins = np.take_along_axis(batch["cls_positions"], column, axis=1)
        weights = self.weights[words] * self.is_predicted[at]
        if self.sizes is not None:
            batch["word_sizes"] = np.where(is_word, self.sizes[at], 0)
        return batch | {
            "word_positions": np.where(is_word, self.positions[at] + begins, 0),
            "is_word": is_word,
            "labels": np.where(is_word, self.labels[words], 0),
            "weights": np.where(is_word, weights, np.float32(0)),
        }

    def unpack(self, row_numbers: np.ndarray, answers: Batch) -> tuple[np.ndarray, Batch]:
        """Splits answers [batch, words], one for each word."""
        is_row, counts = row_numbers >= 0, np.diff(self.starts)[row_numbers]
        return row_numbers[is_row], {
            name: unpack_runs(array, is_row, counts, min(array.shape[1], self.width))
            for name, array in answers.items()
        }

    def predicted_words(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places, among a row's words, of those that it predicts, and their numbers.

        Over all rows, every word comes exactly once.
        """
        places = np.flatnonzero(self.is_predicted[self.starts[row] : self.starts[row + 1]])
        return places, self.first_words[row] + places

    def words_of(self, row: int) -> np.ndarray:
        """Returns the numbers of all words of a row; a word may be in several rows."""
        return self.first_words[row] + np.arange(self.starts[row + 1] - self.starts[row])

    def _words(
        self, row_numbers: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns arrays [batch, words] about the words of the rows of `take`.

        The word's place in `positions`, whether it is a word, its number, and which row of the
        packed ones it is in.
        """
        is_packed = row_numbers.ndim == 2
        numbers = row_numbers if is_packed else row_numbers[:, None]
        rows = np.maximum(numbers, 0)
        counts = np.where(numbers >= 0, self.starts[rows + 1] - self.starts[rows], 0)
        stops = np.cumsum(counts, axis=1)
        is_long = is_packed or self.exact
        word = np.arange(length if is_long else min(length, self.width))
        column = (word >= stops[:, :, None]).sum(axis=1)  # all stops are passed: no word
        is_word = column < numbers.shape[1]
        column = np.where(is_word, column, 0)
        row = np.take_along_axis(rows, column, axis=1)
        in_row = word - np.take_along_axis(stops - counts, column, axis=1)
        at = np.where(is_word, self.starts[row] + in_row, 0)
        return at, is_word, np.where(is_word, self.first_words[row] + in_row, 0), column


def encode_words(
    examples: Iterable[TaggedExample],
    tokenizer: Tokenizer,
    max_sequence_length: int,
    labels: Labels,
    counts: Counter,
    document_context: bool = False,
    stride: int = 0,
    all_pieces: bool = False,
) -> WordRows:
    """Encodes sentences word by word.

    Args:
      examples: read once, a sentence (with document context, a document) at a time.
      tokenizer: any; a word without pieces, such as control characters, is [UNK].
      max_sequence_length: maximum number of tokens of a row.
      labels: the tags.
      counts: updated with `words_without_pieces`, `words_truncated` (to the pieces that fit into a
        row), `tokens_cut_off` of these, and `sentences_of_several_rows`.
      document_context: whether to fill rows with the sentences before and after, except for a
        sentence that needs several rows.
      stride: pieces from the start of a window to that of the next one, up to the border of a word;
        0: half of a window.
      all_pieces: whether words are predicted at all of their pieces, so that batches have their
        `word_sizes`.

    Raises:
      UserError: naming the place, for an unknown tag or different numbers of tags and words; or
        there are no examples, or tags without words, or the stride is longer than a window.
    """
    writer = SequenceWriter(tokenizer, max_sequence_length, stride)
    example, starts, first_words = array("i"), array("q", [0]), array("q")
    positions, sizes, is_predicted = array("i"), array("i"), array("b")
    gold, weights, example_starts = array("i"), array("f"), array("q", [0])
    has_tags = False
    for sentences in documents(examples, document_context):
        pieces = [
            _encode_word(word, tokenizer, writer.room, counts)
            for sentence in sentences
            for word in sentence.words
        ]
        before = [0, *accumulate(map(len, pieces))]  # pieces before each word
        first = 0
        for sentence in sentences:
            stop, tags = first + len(sentence.words), sentence.tags
            windows = _windows(before, first, stop, writer.room, stride)
            counts["sentences_of_several_rows"] += len(windows) > 1
            predicted = _predicted(before, windows, first, stop)
            for window, words in zip(windows, predicted, strict=True):
                writer.add(list(chain.from_iterable(pieces[window.start : window.stop])))
                here = range(max(window.start, first), min(window.stop, stop))
                shift = 1 - before[window.start]  # [CLS] comes first
                positions.extend(before[word] + shift for word in here)
                sizes.extend(len(pieces[word]) for word in here)
                is_predicted.extend(word in words for word in here)
                starts.append(len(positions))
                first_words.append(example_starts[-1] + here.start - first)
                example.append(len(example_starts) - 1)
            if tags is not None and len(tags) != stop - first:
                raise UserError(f"{sentence.where}: {len(tags)} tags for {stop - first} words.")
            numbers = [labels.number(tag, sentence.where) for tag in tags or ()]
            gold.extend(numbers or [0] * (stop - first))
            weights.extend([tags is not None] * (stop - first))
            example_starts.append(len(gold))
            has_tags |= tags is not None
            first = stop
    sequences = writer.finish()
    if not gold:
        if has_tags:
            raise UserError("There are no words to tag.")
        # A word in no row; places without a word refer to it.
        for values in (positions, sizes, is_predicted, gold, weights):
            values.append(0)
    return WordRows(
        sequences=sequences,
        example=flat(example),
        starts=flat(starts),
        positions=flat(positions),
        sizes=flat(sizes) if all_pieces else None,
        is_predicted=flat(is_predicted).astype(bool),
        first_words=flat(first_words),
        labels=flat(gold),
        weights=flat(weights),
        example_starts=flat(example_starts),
    )


def documents(examples: Iterable[T], document_context: bool) -> Iterator[list[T]]:
    """Yields the examples that share rows: those of a document, or each example alone."""
    numbers = count()

    def document(example: Any) -> int:
        return example.document if document_context else next(numbers)

    for _, group in groupby(examples, document):
        while piece := list(islice(group, _LONGEST_DOCUMENT)):
            yield piece


def _encode_word(word: str, tokenizer: Tokenizer, room: int, counts: Counter) -> list[int]:
    ids = tokenizer.encode_word(word)
    counts["words_without_pieces"] += not ids
    counts["words_truncated"] += len(ids) > room
    counts["tokens_cut_off"] += max(0, len(ids) - room)
    return ids[:room] or [tokenizer.unk_id]


def _windows(
    starts: Sequence[int], first: int, stop: int, room: int, stride: int = 0
) -> list[range]:
    """Returns the words of each row of a sentence, `first` to `stop - 1` of the document.

    `starts` are the pieces of the document before each word, and in total; `room`, those of a
    row; `stride`, from the start of a window to that of the next one; 0: half of `room`.
    """
    spare = room - (starts[stop] - starts[first])
    if spare >= 0:
        # Half of the room on each side, and more where the other side has fewer words.
        left = max(spare // 2, spare - (starts[-1] - starts[stop]))
        begin = bisect_left(starts, starts[first] - left)
        return [range(begin, bisect_right(starts, starts[begin] + room) - 1)]
    windows, begin = [], first
    while starts[stop] - starts[begin] > room:
        end = bisect_right(starts, starts[begin] + room) - 1
        windows.append(range(begin, end))
        further_on = bisect_left(starts, starts[begin] + (stride or room // 2))
        begin = min(max(further_on, begin + 1), end)
    # The last one begins as early as possible, for the most context.
    return [*windows, range(bisect_left(starts, starts[stop] - room), stop)]


def _predicted(
    starts: Sequence[int], windows: Sequence[range], first: int, stop: int
) -> list[range]:
    """Returns the words that each window predicts: those whose first piece has the most context."""
    if len(windows) == 1:
        return [range(first, stop)]
    begins = np.array([starts[window.start] for window in windows])
    ends = np.array([starts[window.stop] for window in windows])
    best = max_context_windows(np.array(starts[first:stop]), begins, ends)
    # The best windows of successive words are in order, so each has a range of words.
    cuts = np.searchsorted(best, np.arange(len(windows) + 1)) + first
    return [range(*pair) for pair in pairwise(cuts.tolist())]
