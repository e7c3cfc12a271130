"""Texts without labels: read from files, as rows of ids, and their batches by length.

A window's rows are batched longest first, in one shape for each of a few lengths, so that each
shape is compiled once and every batch has about the same number of positions.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.batch import Batch, EvaluationBatch
from bert_jax.data.labelled.batching import bucket_lengths
from bert_jax.data.labelled.sequences import Sequences
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Text:
    """A text or a pair of texts; `where` names it in error messages."""

    text_a: str
    text_b: str | None = None
    where: str = "A text"

    def __str__(self) -> str:
        return self.text_a if self.text_b is None else f"{self.text_a} | {self.text_b}"


def read_texts(path: str) -> Iterator[Text]:
    """Yields the texts of a file, one a line; an empty line is an empty text.

    Raises:
      UserError: naming the line, for invalid UTF-8, or JSON that is not an object with a string
        `text_a` and, optionally, a string `text_b`.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: invalid UTF-8 ({error.reason}).") from None
            if line.lstrip().startswith("{"):
                yield _parse(line, where)
            else:
                yield Text(line.strip(), where=where)


def _parse(line: str, where: str) -> Text:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where}: not a JSON object ({error}); write a text that begins with {{ as"
            ' {"text_a": TEXT}.'
        ) from None
    text_a, text_b = row.get("text_a"), row.get("text_b")
    if not isinstance(text_a, str) or not isinstance(text_b, str | None):
        raise UserError(
            f"{where}: an object needs a string `text_a`, and `text_b` must be a string if given;"
            f" its fields are {', '.join(row) or 'none'}."
        )
    return Text(text_a, text_b, where)


# A batch is padded to the first of these that is long enough: with few texts, compiling a shape
# takes longer than padding; with many it is the other way round.
FEW_LENGTHS = (16, 32, 64, 128, 256, 512)
MANY_LENGTHS = (*range(16, 128, 16), *range(128, 256, 32), *range(256, 513, 64))


@dataclasses.dataclass(frozen=True)
class TextRow:
    """A text or a pair as ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

    Attributes:
      text: where it comes from.
      input_ids: int32[tokens].
      first_length: of [CLS] A [SEP].
      masked: positions to fill in.
      masked_ids: original ids at these positions, if known.
    """

    text: Text
    input_ids: np.ndarray
    first_length: int
    masked: tuple[int, ...] = ()
    masked_ids: tuple[int, ...] = ()

    @property
    def is_pair(self) -> bool:
        return len(self.input_ids) > self.first_length

    @property
    def word_positions(self) -> np.ndarray:
        """int32[...]: the positions of all tokens but [CLS] and [SEP]."""
        is_special = np.zeros(len(self.input_ids), bool)
        is_special[[0, self.first_length - 1, -1]] = True
        return np.flatnonzero(~is_special).astype(np.int32)


def encode_text(
    text: Text, tokenizer: Tokenizer, longest: int | None, *, masks: bool = False
) -> TextRow:
    """Tokenizes a text or a pair.

    Args:
      text: the text.
      tokenizer: of the model.
      longest: the most tokens that the model takes; None: not checked.
      masks: whether "[MASK]" and other special tokens are encoded as such; `masked` has the masks.

    Raises:
      UserError: it has more tokens than `longest`.
    """
    first = [tokenizer.cls_id, *tokenizer.encode(text.text_a, masks), tokenizer.end_id]
    second = []
    if text.text_b is not None:
        first[-1] = tokenizer.sep_id
        second = [*tokenizer.encode(text.text_b, masks), tokenizer.end_id]
    length = len(first) + len(second)
    if longest is not None and length > longest:
        raise UserError(
            f"{text.where} has {length} tokens, special ones included, and the model takes at"
            f" most {longest}: shorten it. It begins {text.text_a[:40]!r}."
        )
    ids = np.array(first + second, np.int32)
    masked = np.flatnonzero(ids == tokenizer.mask_id)
    return TextRow(text, ids, len(first), tuple(masked.tolist()))


def word_spans(row: TextRow, tokenizer: Tokenizer) -> np.ndarray:
    """int32[words, 2]: the positions [start, stop) of the pieces of each word.

    A word is a piece and the pieces that continue it. [CLS] and [SEP] are no words.
    """
    positions = row.word_positions
    continues = tokenizer.continues(row.input_ids[positions])
    after_special = np.diff(positions, prepend=0) > 1
    after_special[:1] = True
    starts = np.flatnonzero(~continues | after_special)
    sizes = np.diff(np.append(starts, len(positions)))
    return np.stack([positions[starts], positions[starts] + sizes], axis=1).astype(np.int32)


def text_batches(
    rows: Sequence[TextRow],
    longest: int,
    batch_tokens: int,
    shards: int,
    pad_id: int,
    least_slots: int = 1,
    pad_lengths: Sequence[int] = FEW_LENGTHS,
) -> Iterator[EvaluationBatch]:
    """Yields batches with all rows once, the longest first.

    Args:
      rows: a window of texts, all in memory.
      longest: the most tokens that the model takes.
      batch_tokens: positions of a batch, padding included.
      shards: the number of rows of a batch is a multiple of it.
      pad_id: fills rows.
      least_slots: for masks, of a row.
      pad_lengths: lengths below `longest` that batches are padded to.

    Yields:
      Batches in the form of `data.batch`, with int32[batch, slots] `masked_lm_positions` and
      `masked_lm_ids`.
    """
    lengths = bucket_lengths(pad_lengths, longest)
    sequences = _sequences(rows, pad_id)
    order = np.argsort(-sequences.lengths, kind="stable")
    while len(order):
        length = next(n for n in lengths if n >= sequences.lengths[order[0]])
        size = max(1, batch_tokens // length // shards) * shards
        numbers, order = order[:size], order[size:]
        # A power of two slots, so that few shapes are compiled.
        most = max(least_slots, *(len(rows[number].masked) for number in numbers))
        slots = 1 << (most - 1).bit_length()
        numbers = np.pad(numbers, (0, size - len(numbers)), constant_values=-1)

        def read(
            start: int,
            stop: int,
            numbers: np.ndarray = numbers,
            length: int = length,
            slots: int = slots,
        ) -> Batch:
            part = numbers[start:stop]
            return sequences.take(part[:, None], length) | _masks(rows, part, slots)

        yield EvaluationBatch(numbers, length, read)


def _sequences(rows: Sequence[TextRow], pad_id: int) -> Sequences:
    lengths = [len(row.input_ids) for row in rows]
    return Sequences(
        ids=np.concatenate([row.input_ids for row in rows]),
        starts=np.append(0, np.cumsum(lengths)),
        first_lengths=np.array([row.first_length for row in rows], np.int32),
        pad_id=pad_id,
    )


def _masks(rows: Sequence[TextRow], numbers: np.ndarray, slots: int) -> Batch:
    positions, ids = np.zeros((2, len(numbers), slots), np.int32)
    for i, number in enumerate(numbers.tolist()):
        if number >= 0:
            row = rows[number]
            positions[i, : len(row.masked)] = row.masked
            ids[i, : len(row.masked_ids)] = row.masked_ids
    return {"masked_lm_positions": positions, "masked_lm_ids": ids}
