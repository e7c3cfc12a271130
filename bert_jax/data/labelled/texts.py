"""Texts without labels: read from files, encoded as ids, and as rows that the predictor packs."""

import dataclasses
import functools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.labelled.examples import TEXT_FORMS, Example
from bert_jax.data.labelled.forms.text_tables import CHOOSE, find_column, has_columns
from bert_jax.data.labelled.reading import is_array, place, read_lines, read_objects
from bert_jax.data.labelled.sequences import Sequences
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer

Answers = Mapping[str, np.ndarray]
# Several masks in a row, such as [MASK:5].
_SPAN = re.compile(r"\[MASK:([1-9]\d{0,2})\]")


@dataclasses.dataclass(frozen=True)
class Text(Example):
    """A text or a pair of texts; `where` names it in error messages."""

    text_a: str
    text_b: str | None = None
    where: str = "A text"

    FORMS = TEXT_FORMS

    @classmethod
    def from_inputs(cls, values, where, number):
        return cls(values["text_a"], values.get("text_b"), where)

    def __str__(self) -> str:
        return self.text_a if self.text_b is None else f"{self.text_a} | {self.text_b}"


def read_texts(path: str, column: str = "", choose: str = CHOOSE) -> Iterator[Text]:
    """Yields the texts of a file, one per line, or of the text column of a table.

    An empty line or cell is an empty text.

    Args:
      path: a file; tables may also be folders of Parquet files, or tfds:NAME[SPLIT].
      column: column of a table, by name or number; "": see `text_tables.find_column`.
      choose: how the user names a column, for messages.

    Raises:
      UserError: naming the line, for invalid UTF-8, or JSON that is not an object with a string
        `text_a` and, optionally, a string `text_b`; or a table has no such column.
    """
    if column or has_columns(path):
        for where, first, second in find_column(path, column, choose).read(path):
            yield Text(first, second, where)
        return
    if is_array(path):
        for where, row in read_objects(path, Counter()):
            yield _text_of(row, where)
        return
    for number, line in read_lines(path, Counter()):
        where = place(path, number)
        is_object = line.lstrip().startswith("{")
        yield _parse(line, where) if is_object else Text(line.strip(), where=where)


def _parse(line: str, where: str) -> Text:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(
            f"{where}: not a JSON object ({error}); write a text that begins with {{ as"
            ' {"text_a": TEXT}.'
        ) from None
    return _text_of(row, where)


def _text_of(row: dict[str, Any], where: str) -> Text:
    text_a, text_b = row.get("text_a"), row.get("text_b")
    if not isinstance(text_a, str) or not isinstance(text_b, str | None):
        raise UserError(
            f"{where}: an object needs a string `text_a`, and `text_b` must be a string if given;"
            f" its fields are {', '.join(row) or 'none'}."
        )
    return Text(text_a, text_b, where)


@dataclasses.dataclass(frozen=True)
class TextRow:
    """An encoded text or pair: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

    Special tokens that the tokenizer does not have (id -1) are left out.

    Attributes:
      text: name of its source.
      input_ids: int32[tokens].
      first_length: number of tokens in [CLS] A [SEP].
      word_positions: int32[...], the positions of all tokens except the special ones.
      masked: positions to fill in.
      masked_ids: original ids at these positions, if known.
      cut: number of tokens that were cut off.
    """

    text: Text
    input_ids: np.ndarray
    first_length: int
    word_positions: np.ndarray
    masked: tuple[int, ...] = ()
    masked_ids: tuple[int, ...] = ()
    cut: int = 0

    @property
    def is_pair(self) -> bool:
        return self.text.text_b is not None


def spell_masks(text: str) -> str:
    """Returns a text with [MASK:3] written as [MASK] [MASK] [MASK]; up to 999 are allowed."""
    return _SPAN.sub(lambda match: " ".join(["[MASK]"] * int(match[1])), text)


def encode_text(
    text: Text,
    tokenizer: Tokenizer,
    max_length: int | None,
    *,
    masks: bool = False,
    advice: str = "shorten it",
) -> TextRow:
    """Tokenizes a text or a pair.

    Args:
      text: the text.
      tokenizer: the model's; its special tokens with id -1 are left out.
      max_length: maximum number of tokens; None: not checked.
      masks: whether "[MASK]", "[MASK:3]" (see `spell_masks`) and other special tokens are encoded
        as such; `masked` has the masks.
      advice: what to do with a text that is too long, for the message.

    Raises:
      UserError: it has more tokens than `max_length`, or none at all.
    """
    spell = spell_masks if masks else str
    parts = [([tokenizer.cls_id], False), (tokenizer.encode(spell(text.text_a), masks), True)]
    if text.text_b is not None:
        parts.append(([tokenizer.sep_id] * tokenizer.num_separators, False))
        parts.append((tokenizer.encode(spell(text.text_b), masks), True))
    parts.append(([tokenizer.end_id], False))
    parts = [(ids if is_text else [i for i in ids if i >= 0], is_text) for ids, is_text in parts]
    ids = np.array([i for part, _ in parts for i in part], np.int32)
    is_word = np.repeat([is_text for _, is_text in parts], [len(part) for part, _ in parts])
    if max_length is not None and len(ids) > max_length:
        raise UserError(
            f"{text.where} has {len(ids)} tokens, special ones included, and the model takes at"
            f" most {max_length}: {advice}. It begins {text.text_a[:40]!r}."
        )
    if not len(ids):
        raise UserError(
            f"{text.where} has no tokens, and this model has no token that begins a text: give a"
            " word."
        )
    first_length = sum(len(part) for part, _ in parts[:3])
    masked = np.flatnonzero(ids == tokenizer.mask_id)
    words = np.flatnonzero(is_word).astype(np.int32)
    return TextRow(text, ids, first_length, words, tuple(masked.tolist()))


def word_spans(row: TextRow, tokenizer: Tokenizer) -> np.ndarray:
    """int32[words, 2]: the positions [start, stop) of the pieces of each word.

    A word is a piece and the pieces that continue it. [CLS] and [SEP] are not words.
    """
    positions = row.word_positions
    continues = tokenizer.continues(row.input_ids[positions])
    after_special = (np.diff(positions, prepend=0) > 1) | (positions == row.first_length)
    after_special[:1] = True
    starts = np.flatnonzero(~continues | after_special)
    sizes = np.diff(np.append(starts, len(positions)))
    return np.stack([positions[starts], positions[starts] + sizes], axis=1).astype(np.int32)


def masked_copies(
    row: TextRow, tokenizer: Tokenizer, within_words: bool = False
) -> Iterator[TextRow]:
    """Yields a copy of a text for each of its tokens, in which that token is masked.

    With `within_words`, so are the later pieces of its word; they are not to be filled in.
    """
    stops = {}
    if within_words:
        spans = word_spans(row, tokenizer).tolist()
        stops = {place: stop for start, stop in spans for place in range(start, stop)}
    for position in row.word_positions.tolist():
        ids = row.input_ids.copy()
        ids[position : stops.get(position, position + 1)] = tokenizer.mask_id
        answer = int(row.input_ids[position])
        yield dataclasses.replace(row, input_ids=ids, masked=(position,), masked_ids=(answer,))


# Answers of models for texts: those for each mask, and those for each example. All others are for
# each token.
_FOR_MASKS = ("probabilities", "tokens", "mask_log_probabilities")
_FOR_EXAMPLES = ("next_sentence", "embeddings", "pooled")


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Encoded texts in memory, as rows that may be packed; see `EncodedRows`."""

    rows: Sequence[TextRow]
    tokenizer: Tokenizer

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64[texts] in tokens, special ones included."""
        return np.array([len(row.input_ids) for row in self.rows], np.int64)

    @functools.cached_property
    def _sequences(self) -> Sequences:
        return Sequences(
            ids=np.concatenate([row.input_ids for row in self.rows]),
            starts=np.append(0, np.cumsum(self.lengths)),
            first_lengths=np.array([row.first_length for row in self.rows], np.int32),
            pad_id=self.tokenizer.pad_id,
        )

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Returns a batch with several texts in each row.

        Args:
          row_numbers: int64[batch, N], numbers of texts; -1: absent, which only the last may be.
          length: tokens of a row, padding included.

        Returns:
          The fields of `Sequences.take`, and int32[batch, slots] `masked_lm_positions` and
          `masked_lm_ids` of the masks of all texts of a row, in order.
        """
        if len(self.rows) == row_numbers.shape[0] == 1 and not self.rows[0].masked:
            return self._take_alone(row_numbers.shape[1], length)
        batch = self._sequences.take(row_numbers, length)
        counts = np.where(row_numbers >= 0, self.mask_counts[row_numbers], 0)
        # A power of two, at least N, so that few shapes are compiled.
        max_slots = max(row_numbers.shape[1], int(counts.sum(1).max(initial=1)))
        slots = 1 << (max_slots - 1).bit_length()
        positions, ids = np.zeros((2, len(row_numbers), slots), np.int32)
        for at in np.flatnonzero(counts.any(axis=1)):
            filled = 0
            for begin, number in zip(batch["cls_positions"][at], row_numbers[at], strict=True):
                row = self.rows[number]
                if number >= 0 and row.masked:
                    stop = filled + len(row.masked)
                    positions[at, filled:stop] = np.add(row.masked, begin)
                    ids[at, filled : filled + len(row.masked_ids)] = row.masked_ids
                    filled = stop
        return batch | {"masked_lm_positions": positions, "masked_lm_ids": ids}

    def _take_alone(self, max_texts: int, length: int) -> Batch:
        """Returns `take` of one text without masks, in a tenth of the time of the general case."""
        (row,) = self.rows
        tokens = len(row.input_ids)
        fields = np.zeros((4, 1, length), np.int32)
        input_ids, token_type_ids, position_ids, example_ids = fields
        input_ids[0, :tokens], input_ids[0, tokens:] = row.input_ids, self.tokenizer.pad_id
        token_type_ids[0, row.first_length : tokens] = 1
        position_ids[0, :tokens] = np.arange(tokens)
        example_ids[0, :tokens] = 1
        slots = np.zeros((1, 1 << (max_texts - 1).bit_length()), np.int32)
        return {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "example_ids": example_ids,
            "cls_positions": np.zeros((1, max_texts), np.int32),
            "masked_lm_positions": slots,
            "masked_lm_ids": slots,
        }

    def unpack(self, row_numbers: np.ndarray, answers: Answers) -> tuple[np.ndarray, Any]:
        """Returns the numbers of the texts of a packed batch, and for each name a list of arrays.

        Args:
          row_numbers: int64[batch, N], as in `take`.
          answers: arrays [batch, N, ...], [batch, slots, ...] or [batch, seq, ...]; the results
            have the part of one text, without the batch axis.
        """
        rows, columns = np.nonzero(row_numbers >= 0)
        numbers = row_numbers[rows, columns]
        found = {}
        for name, array in answers.items():
            if name in _FOR_EXAMPLES:
                found[name] = array[rows, columns]
                continue
            per_text = self.mask_counts if name in _FOR_MASKS else self.lengths
            counts = np.where(row_numbers >= 0, per_text[row_numbers], 0)
            stops = np.cumsum(counts, axis=1)
            places = zip(rows, stops[rows, columns], counts[rows, columns], strict=True)
            found[name] = [array[row, stop - count : stop] for row, stop, count in places]
        return numbers, found

    @functools.cached_property
    def mask_counts(self) -> np.ndarray:
        """int64[texts]: the masks of each."""
        return np.array([len(row.masked) for row in self.rows], np.int64)
