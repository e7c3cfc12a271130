"""Encoded examples in memory: token sequences end to end in flat arrays, and their rows.

In every task, a reader yields examples (examples.py), and an encoder (encode_texts.py,
encode_words.py, encode_questions.py) fills a `SequenceWriter` and returns `EncodedRows`, whose
`take` makes batches of any rows, one or several in a row of the batch.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bert_jax.data.batch import Batch, token_fields
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

# [CLS] A [SEP] B [SEP] with a few tokens of each.
MIN_LENGTH = 8


@dataclass(frozen=True)
class Sequences:
    """Sequences [CLS] A [SEP] or [CLS] A [SEP] B [SEP], end to end.

    Attributes:
      ids: int32[tokens], of all sequences.
      starts: int64[sequences + 1], where each begins in `ids`.
      first_lengths: int32[sequences], tokens of [CLS] A [SEP].
      pad_id: id of padding.
    """

    ids: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray
    pad_id: int

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32[sequences], special tokens included."""
        return np.diff(self.starts).astype(np.int32)

    def take(self, numbers: np.ndarray, length: int) -> Batch:
        """Lays out rows of one or several sequences.

        Args:
          numbers: int64[..., N], the sequences of each row; -1: absent, after all others of a row.
          length: tokens of a row, padding included.

        Returns:
          The fields of `batch.token_fields`: int32[..., length], and `cls_positions` int32[..., N].

        Raises:
          UserError: the sequences of a row have more than `length` tokens.
        """
        rows = numbers.reshape(-1, numbers.shape[-1])
        at = np.maximum(rows, 0)
        lengths = np.where(rows >= 0, self.lengths[at], 0)
        starts, firsts = self.starts[at], self.first_lengths[at]
        fields = token_fields(self.ids, starts, lengths, firsts, length, self.pad_id)
        return {n: x.reshape(*numbers.shape[:-1], x.shape[1]) for n, x in fields.items()}


class SequenceWriter:
    """Collects sequences.

    Args:
      tokenizer: has the special tokens.
      max_length: maximum number of tokens of a sequence.
      stride: tokens from the start of a window of a text to that of the next one; 0: half of a
        window.

    Raises:
      UserError: `max_length` is too short, or `stride` would leave out tokens between windows.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int, stride: int = 0):
        if max_length < MIN_LENGTH:
            raise UserError(
                f"max_sequence_length={max_length} is too short: give at least {MIN_LENGTH}."
            )
        self.room, self._stride = max_length - 2, stride
        if stride > self.room:
            raise UserError(
                f"config.task.stride={stride} is above {self.room}, the tokens of a window: give"
                " at most that, or 0 for half of it."
            )
        self.room_of_pair = max_length - 2 - tokenizer.num_separators
        self._tokenizer = tokenizer
        self._ids, self._starts, self._first_lengths = array("i"), array("q", [0]), array("i")

    def __len__(self) -> int:
        return len(self._first_lengths)

    def add(self, first: Sequence[int], second: Sequence[int] | None = None) -> None:
        """Adds a sequence, which the caller has truncated."""
        self._ids.append(self._tokenizer.cls_id)
        self._ids.extend(first)
        if second is not None:
            self._ids.extend([self._tokenizer.sep_id] * self._tokenizer.num_separators)
            self._ids.extend(second)
        self._ids.append(self._tokenizer.end_id)
        self._starts.append(len(self._ids))
        # [CLS] A [SEP], or, of a pair, everything before B.
        more = 2 if second is None else 1 + self._tokenizer.num_separators
        self._first_lengths.append(len(first) + more)

    def add_truncated(self, first: Sequence[int], second: Sequence[int] | None = None) -> int:
        """Adds a sequence, truncated to fit; returns the number of tokens cut off.

        Tokens are cut off at the end, those of a pair like in `_truncate_seq_pair` of
        run_classifier.py: until both fit, the longer one loses its last token; B, if they are
        equally long.
        """
        num_a, num_b = len(first), len(second or ())
        if second is None:
            first = first[: self.room]
        else:
            room = self.room_of_pair
            first = first[: max(room - num_b, (room + 1) // 2)]
            second = second[: room - len(first)]
        self.add(first, second)
        return num_a + num_b - len(first) - len(second or ())

    def add_windows(self, first: Sequence[int], second: Sequence[int] | None = None) -> int:
        """Adds a sequence for each window of a text; returns the number of tokens cut off.

        A text that fits is one sequence. For a pair, the longer text is read in windows, and the
        other one is in all of them, cut off at half of the room.
        """
        if second is None:
            for window in self._windows(first, self.room):
                self.add(window)
            return 0
        if len(first) + len(second) <= self.room_of_pair:
            self.add(first, second)
            return 0
        longer, other = (first, second) if len(first) >= len(second) else (second, first)
        kept = other[: self.room_of_pair // 2]
        for window in self._windows(longer, self.room_of_pair - len(kept)):
            self.add(*((window, kept) if longer is first else (kept, window)))
        return len(other) - len(kept)

    def _windows(self, tokens: Sequence[int], size: int) -> Iterator[Sequence[int]]:
        return (tokens[at : at + size] for at in window_starts(len(tokens), size, self._stride))

    def finish(self) -> Sequences:
        """Returns all sequences; UserError: there are none."""
        if not len(self):
            raise UserError("There are no examples to make rows of.")
        ids, starts, first_lengths = map(flat, (self._ids, self._starts, self._first_lengths))
        return Sequences(ids, starts, first_lengths, self._tokenizer.pad_id)


def flat(numbers: array) -> np.ndarray:
    """Returns the numbers as a numpy array, without a copy."""
    return np.frombuffer(numbers, numbers.typecode) if numbers else np.empty(0, numbers.typecode)


def window_starts(count: int, size: int, stride: int = 0) -> list[int]:
    """Returns where the windows of a text begin; the last one ends with the text.

    >>> window_starts(count=100, size=38, stride=19)
    [0, 19, 38, 57, 62]

    Args:
      count: tokens of the text.
      size: tokens of a window.
      stride: from a start to the next one; 0: half of a window. A stride longer than a window is
        shortened to it, so that every token is in a window.
    """
    if count <= size:
        return [0]
    return [*range(0, count - size, min(stride or max(1, size // 2), size)), count - size]


def max_context_windows(places: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns int64[tokens], the window that shows each token with the most context.

    The rule of `run_squad.py`: a window's score is the smaller of the numbers of its tokens to the
    left and to the right, plus a hundredth of its length; the first of equal scores wins.

    Args:
      places: int[tokens], the tokens' places in the text. Every token is in at least one window.
      begins, ends: int[windows], the places of each window's first token and after its last one.
    """
    left, right = places - begins[:, None], ends[:, None] - 1 - places
    scores = np.minimum(left, right) + 0.01 * (ends - begins)[:, None]
    return np.where((left >= 0) & (right >= 0), scores, -np.inf).argmax(axis=0)


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The encoded rows of a data set; subclasses add labels of words or positions.

    Attributes:
      sequences: one for each row.
      example: int32[rows], the example of each row; rows of an example are consecutive.
      fields: arrays [rows, ...] that batches have as they are, such as `labels`.
      exact: whether the shape of a batch follows from its length and any one of its rows;
        otherwise some sizes are those of the whole data set.
    """

    sequences: Sequences
    example: np.ndarray
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    exact: bool = False

    @property
    def num_rows(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> np.ndarray:
        """int32[rows], in tokens, special tokens included."""
        return self.sequences.lengths

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Makes a batch of rows.

        Args:
          row_numbers: int64[batch], one row per row of the batch, or int64[batch, N] (from
            `packing.pack_rows`), several, which do not attend to each other; -1: padding, whose
            weights are 0, after all others.
          length: tokens of a row of the batch, padding included, which the rows must fit in.

        Returns:
          The fields of `Sequences.take` and of the task, whose per-row arrays begin with the shape
          of `row_numbers`.
        """
        is_packed = row_numbers.ndim == 2
        numbers = row_numbers if is_packed else row_numbers[:, None]
        return self.sequences.take(numbers, length) | self.fields_of(row_numbers)

    def fields_of(self, row_numbers: np.ndarray) -> Batch:
        """Returns `fields` of rows, with zeros for the number -1."""
        is_row, at = row_numbers >= 0, np.maximum(row_numbers, 0)
        return {
            name: np.where(
                is_row.reshape(is_row.shape + (1,) * (values.ndim - 1)),
                values[at],
                values.dtype.type(0),
            )
            for name, values in self.fields.items()
        }

    def unpack(self, row_numbers: np.ndarray, answers: Batch) -> tuple[np.ndarray, Batch]:
        """Returns the answers to a packed batch in the form of those to an unpacked one.

        Args:
          row_numbers: int64[batch, N], as `take` takes them.
          answers: arrays [batch, N, ...]; rows with answers for tokens or words override this.

        Returns:
          int64[rows], the numbers of the rows, without -1; and arrays [rows, ...].
        """
        is_row = row_numbers >= 0
        return row_numbers[is_row], {name: array[is_row] for name, array in answers.items()}


@dataclass(frozen=True, kw_only=True)
class GroupedRows(EncodedRows):
    """Rows of several sequences that are scored together, such as the choices of an example.

    Attributes:
      starts: int64[rows + 1], the first sequence of each row.
    """

    starts: np.ndarray

    @cached_property
    def sizes(self) -> np.ndarray:
        """int64[rows], sequences of each row; those of an exact batch are equal."""
        return np.diff(self.starts)

    @cached_property
    def max_sequences(self) -> int:
        """The maximum number of sequences of a row."""
        return int(self.sizes.max())

    @property
    def lengths(self) -> np.ndarray:
        """int32[rows], tokens of the longest sequence of each row."""
        return np.maximum.reduceat(self.sequences.lengths, self.starts[:-1])

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Returns arrays [batch, sequences, length or 1], and `fields`.

        There are `max_sequences` in a row, or with `exact` as many as the first row has. A sequence
        that a row lacks is all padding. `row_numbers` are int64[batch].
        """
        at = np.maximum(row_numbers, 0)[:, None]
        count = int(self.sizes[row_numbers[0]]) if self.exact else self.max_sequences
        numbers = self.starts[at] + np.arange(count)
        is_here = (row_numbers[:, None] >= 0) & (numbers < self.starts[at + 1])
        batch = self.sequences.take(np.where(is_here, numbers, -1)[..., None], length)
        return batch | self.fields_of(row_numbers)


def unpack_runs(
    array: np.ndarray, is_row: np.ndarray, counts: np.ndarray, width: int
) -> np.ndarray:
    """Splits packed rows, whose parts are end to end: [batch, places, ...] -> [rows, width, ...].

    Args:
      array: the values.
      is_row, counts: bool and int64[batch, N], whether there is a part, and how many places it has.
      width: places of a result; a part fills the first ones.
    """
    rows, columns = np.nonzero(is_row)
    counts = np.where(is_row, counts, 0)
    begins = (np.cumsum(counts, axis=1) - counts)[rows, columns]
    places = np.minimum(begins[:, None] + np.arange(width), array.shape[1] - 1)
    return array[rows[:, None], places]
