"""Rows of token ids in memory: the encoded examples of a fine-tuning task.

All rows of a data set are end to end in flat arrays, without an object for each, and `take` pads
any of them to a batch. encode_texts.py, encode_words.py, encode_questions.py and choices.py add the
labels of the tasks.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_jax.data.corpus.batch import Batch, token_fields
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

# [CLS] A [SEP] B [SEP] with a few tokens of each.
SHORTEST = 8
# How many names an error message lists.
_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Labels:
    """The labels of a task, in the order of their numbers."""

    names: tuple[str, ...]

    @classmethod
    def find(cls, names: Iterable[str]) -> "Labels":
        """Returns the distinct labels, sorted; by value if all are whole numbers.

        Raises:
          UserError: there are none.
        """
        distinct = set(names)
        if not distinct:
            raise UserError("The training data have no labels.")
        is_numbers = all(name.isascii() and name.isdecimal() for name in distinct)
        return cls(tuple(sorted(distinct, key=(lambda n: (int(n), n)) if is_numbers else None)))

    @classmethod
    def find_tags(cls, tags: Iterable[str]) -> "Labels":
        """Returns O and, for each type of entity in the tags, B- and I-; other tags unchanged.

        So a type whose entities have one word in the training data may have longer ones later.
        """
        names: set[str] = set()
        for tag in set(tags):
            is_entity = tag[:2] in ("B-", "I-")
            names |= {"B" + tag[1:], "I" + tag[1:], "O"} if is_entity else {tag}
        return cls(tuple(sorted(cls.find(names).names, key=lambda n: (n != "O", n[2:], n))))

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str, where: str) -> int:
        """Returns the number of a label.

        Raises:
          UserError: naming the place, for an unknown label.
        """
        number = self._numbers.get(name)
        if number is None:
            shown = ", ".join(self.names[:_NAMES_SHOWN])
            more = f" and {len(self) - _NAMES_SHOWN} more" if len(self) > _NAMES_SHOWN else ""
            raise UserError(
                f"{where}: unknown label {name!r}; the labels of the training data are"
                f" {shown}{more}."
            )
        return number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}


@dataclass(frozen=True)
class Sequences:
    """Sequences [CLS] A [SEP] or [CLS] A [SEP] B [SEP], end to end.

    Attributes:
      ids: int32[tokens], of all sequences.
      starts: int64[sequences + 1], where each begins in `ids`.
      first_lengths: int32[sequences], tokens of [CLS] A [SEP].
      pad_id: the id of padding.
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
        """Pads sequences to a batch.

        Args:
          numbers: int64[...], of the sequences; -1 is padding.
          length: of the rows of the batch.

        Returns:
          The fields of `batch.token_fields`: int32[..., length], and `cls_positions` int32[..., 1].

        Raises:
          UserError: a sequence is longer than `length`.
        """
        at = np.maximum(numbers, 0).ravel()
        lengths = np.where(numbers.ravel() >= 0, self.lengths[at], 0)
        batch = token_fields(
            self.ids,
            self.starts[at],
            lengths[:, None],
            self.first_lengths[at][:, None],
            length,
            self.pad_id,
        )
        return {n: array.reshape(*numbers.shape, array.shape[1]) for n, array in batch.items()}

    def take_packed(self, numbers: np.ndarray, length: int) -> Batch:
        """Puts several sequences into each row of a batch, one after the other.

        Args:
          numbers: int64[batch, N], of the sequences; -1: absent, which only the last ones may be.
          length: of the rows of the batch.

        Returns:
          The fields of `batch.token_fields`, with `cls_positions` int32[batch, N].

        Raises:
          UserError: the sequences of a row are longer than `length`.
        """
        at = np.maximum(numbers, 0)
        lengths = np.where(numbers >= 0, self.lengths[at], 0)
        ids = [self.ids[self.starts[i] : self.starts[i + 1]] for i in numbers[numbers >= 0]]
        row_lengths = lengths.sum(axis=1)
        return token_fields(
            np.concatenate(ids) if ids else np.empty(0, np.int32),
            np.cumsum(row_lengths) - row_lengths,
            lengths,
            self.first_lengths[at],
            length,
            self.pad_id,
        )


class SequenceWriter:
    """Collects sequences.

    Args:
      tokenizer: has the special tokens.
      max_sequence_length: most tokens of a sequence.

    Raises:
      UserError: `max_sequence_length` is too short.
    """

    def __init__(self, tokenizer: Tokenizer, max_sequence_length: int):
        if max_sequence_length < SHORTEST:
            raise UserError(
                f"max_sequence_length={max_sequence_length} is too short: give at least {SHORTEST}."
            )
        self.room = max_sequence_length - 2
        self.room_of_pair = max_sequence_length - 3
        self._tokenizer = tokenizer
        self._ids, self._starts, self._first_lengths = array("i"), array("q", [0]), array("i")

    def __len__(self) -> int:
        return len(self._first_lengths)

    def add(self, first: Sequence[int], second: Sequence[int] | None = None) -> None:
        """Adds a sequence, which the caller has truncated."""
        self._ids.append(self._tokenizer.cls_id)
        self._ids.extend(first)
        if second is not None:
            self._ids.append(self._tokenizer.sep_id)
            self._ids.extend(second)
        self._ids.append(self._tokenizer.end_id)
        self._starts.append(len(self._ids))
        self._first_lengths.append(len(first) + 2)

    def finish(self) -> Sequences:
        """Returns all sequences.

        Raises:
          UserError: there are none.
        """
        if not len(self):
            raise UserError("There are no examples to make rows of.")
        return Sequences(
            flat(self._ids),
            flat(self._starts),
            flat(self._first_lengths),
            self._tokenizer.pad_id,
        )


def flat(numbers: array) -> np.ndarray:
    """Returns the numbers as a numpy array, without a copy."""
    return np.frombuffer(numbers, numbers.typecode) if numbers else np.empty(0, numbers.typecode)


def fit_pair(num_a: int, num_b: int, room: int) -> tuple[int, int]:
    """Returns how many tokens of A and of B to keep.

    As in `_truncate_seq_pair` of run_classifier.py: until both fit, the longer one loses its last
    token; B, if they are equally long.
    """
    kept_a = min(num_a, max(room - num_b, (room + 1) // 2))
    return kept_a, min(num_b, room - kept_a)


def most_context(places: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns which of several overlapping windows shows each token with the most context.

    The rule of `run_squad.py`: the score of a window is the smaller of the numbers of its tokens to
    the left and to the right, plus a hundredth of its length; the first of equal scores wins.

    Args:
      places: int[tokens], of the tokens in the text. Every token is in one window at least.
      begins: int[windows], the place of each window's first token.
      ends: int[windows], the place after its last token.

    Returns:
      int64[tokens], numbers of windows.
    """
    left, right = places - begins[:, None], ends[:, None] - 1 - places
    scores = np.minimum(left, right) + 0.01 * (ends - begins)[:, None]
    return np.where((left >= 0) & (right >= 0), scores, -np.inf).argmax(axis=0)


@dataclass(frozen=True)
class TaskRows:
    """The rows of a data set; each task adds labels.

    Attributes:
      sequences: one for each row.
      example: int32[rows], the example of each row; rows of an example are consecutive.
    """

    sequences: Sequences
    example: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> np.ndarray:
        """int32[rows] in tokens, special ones included."""
        return self.sequences.lengths

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Pads rows to a batch.

        Args:
          row_numbers: int64[batch]; -1 is a row of padding, all of whose weights are 0.
          length: of the rows of the batch.

        Returns:
          The fields of `Sequences.take`, and those of the task.

        Raises:
          UserError: a row is longer than `length`.
        """
        return self.sequences.take(row_numbers, length)

    def take_packed(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Puts several rows into each row of a batch, where they do not attend to each other.

        Args:
          row_numbers: int64[batch, N]; -1: absent, which only the last ones may be.
          length: of the rows of the batch.

        Returns:
          The fields of `Sequences.take_packed`, and those of the task: for each row, in the place
          of [batch], [batch, N]; for each word, those of all rows in order, up to `length`.

        Raises:
          UserError: the rows are longer than `length` together.
        """
        return self.sequences.take_packed(row_numbers, length)


def pick(values: np.ndarray, row_numbers: np.ndarray) -> np.ndarray:
    """Returns values[row_numbers], with zeros for the number -1."""
    is_row = (row_numbers >= 0).reshape(row_numbers.shape + (1,) * (values.ndim - 1))
    return np.where(is_row, values[np.maximum(row_numbers, 0)], np.zeros((), values.dtype))
