"""Blocks of rows, as flat arrays and as bytes, and the batch form of rows.

A row is one or several examples `[CLS] A [SEP] B [SEP]`, one after the other, without padding. An
example without B is `[CLS] A [SEP]`. A row of running text is nothing but the text, and counts as
an example whose `a_length` is two below the length of the row.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.batch import Batch, token_fields
from bert_jax.data.corpus.documents import id_dtype
from bert_jax.files.errors import UserError

# Name, dtype (None: that of ids) and count of the arrays of a block, in the order on disk.
_COUNTS = ("rows", "examples", "tokens", "masked")
_FIELDS = (
    ("input_ids", None, "tokens"),
    ("masked_lm_ids", None, "masked"),
    ("masked_lm_positions", "<u2", "masked"),
    ("a_lengths", "<u2", "examples"),
    ("b_lengths", "<u2", "examples"),
    ("num_masked", "<u2", "rows"),
    ("num_examples", "|u1", "rows"),
    ("next_sentence_labels", "|u1", "examples"),
)
# At the end of a block, if stored.
_UNITS = ("mask_units", "|i1", "tokens")


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of different lengths, end to end in flat arrays."""

    input_ids: np.ndarray  # id[tokens], special tokens included
    masked_lm_ids: np.ndarray  # id[masked]
    masked_lm_positions: np.ndarray  # uint16[masked], in the row
    a_lengths: np.ndarray  # uint16[examples], without special tokens
    b_lengths: np.ndarray  # uint16[examples]; 0: no B
    num_masked: np.ndarray  # uint16[rows]
    num_examples: np.ndarray  # uint8[rows]
    next_sentence_labels: np.ndarray  # uint8[examples]
    mask_units: np.ndarray | None = None  # int8[tokens], as in `PhraseMatcher.stored`

    def to_bytes(self) -> bytes:
        fields = _FIELDS if self.mask_units is None else (*_FIELDS, _UNITS)
        arrays = [getattr(self, name) for name, _, _ in fields]
        counts = {count: array.size for (_, _, count), array in zip(fields, arrays, strict=True)}
        header = np.array([counts[count] for count in _COUNTS], "<u4")
        return b"".join(array.tobytes() for array in (header, *arrays))

    @functools.cached_property
    def _bounds(self) -> tuple[list[int], list[int], list[int]]:
        """Returns where each row's examples, tokens and masks begin, and the last ones end."""
        examples = np.append(0, np.cumsum(self.num_examples, dtype=np.int64))
        lengths = example_lengths(self.a_lengths, self.b_lengths)
        tokens = np.append(0, np.cumsum(lengths))[examples]
        masked = np.append(0, np.cumsum(self.num_masked, dtype=np.int64))
        return examples.tolist(), tokens.tolist(), masked.tolist()

    def row(self, number: int) -> tuple[np.ndarray, ...]:
        """Returns the arrays of a row: input ids; its examples' lengths of A and B and next
        sentence labels; masked positions and ids; and the masking units, if stored."""
        examples, tokens, masked = self._bounds
        example = slice(examples[number], examples[number + 1])
        mask = slice(masked[number], masked[number + 1])
        token = slice(tokens[number], tokens[number + 1])
        return (
            self.input_ids[token],
            self.a_lengths[example],
            self.b_lengths[example],
            self.next_sentence_labels[example],
            self.masked_lm_positions[mask],
            self.masked_lm_ids[mask],
            *(() if self.mask_units is None else (self.mask_units[token],)),
        )


def example_lengths(a_lengths: np.ndarray, b_lengths: np.ndarray) -> np.ndarray:
    """Returns int64[examples], the lengths with [CLS] and a [SEP] after A and after B, if any."""
    return a_lengths.astype(np.int64) + b_lengths + 2 + (b_lengths > 0)


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """The format of the rows of one sequence length; the same for all splits."""

    sequence_length: int
    # Maximum number of examples of a row: N of the batch form.
    examples_per_row: int
    # Maximum number of masked positions of a row, P of the batch form; 0: masks are not stored.
    max_predictions: int
    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int
    # Ends an example; equal to `sep_id` in most vocabularies.
    end_id: int
    # Whether the masking units (text/lexicon.py) are stored.
    mask_units: bool = False

    # Whether row r continues row r - 1.
    is_stream: ClassVar[bool] = False

    @property
    def padding(self) -> tuple[np.ndarray, ...]:
        """The arrays of a padding row: no examples."""
        return (np.empty(0, np.uint16),) * (7 if self.mask_units else 6)

    @property
    def id_dtype(self) -> np.dtype:
        return id_dtype(self.vocab_size)

    @property
    def unpredicted(self) -> tuple[int, ...]:
        """Ids that are never predicted."""
        return self.cls_id, self.sep_id, self.end_id

    def read_block(self, data: bytes) -> Block:
        """Returns the block of `Block.to_bytes`.

        Raises:
          UserError: `data` is not a block of such ids and arrays.
        """
        header = np.frombuffer(data, "<u4", 4).tolist()
        counts: dict[str, int] = dict(zip(_COUNTS, header, strict=True))
        arrays, offset = {}, 16
        for name, dtype, count in (*_FIELDS, _UNITS) if self.mask_units else _FIELDS:
            arrays[name] = np.frombuffer(data, dtype or self.id_dtype, counts[count], offset)
            offset += arrays[name].nbytes
        if offset != len(data):
            raise UserError(f"a block of {len(data)} bytes should have {offset}")
        return Block(**arrays)

    def make_batch(self, rows: Sequence[tuple[np.ndarray, ...]]) -> Batch:
        """Lays rows out in the batch form.

        Args:
          rows: results of `Block.row`, or `padding`, which has weight zero.

        Returns:
          The fields of `batch.token_fields`, int32[batch, N] `next_sentence_labels` and
          float32[batch, N] `next_sentence_weights` (0 without a B); with masks also int32[batch, P]
          `masked_lm_positions masked_lm_ids` and float32[batch, P] `masked_lm_weights`; with units
          int8[batch, seq] `mask_units`, 0 in padding.
        """
        ids, a_lengths, b_lengths, labels, positions, masked_ids, *units = zip(*rows, strict=True)
        num_examples = np.array([len(lengths) for lengths in a_lengths])

        def spread(values: Sequence[np.ndarray], counts: np.ndarray, width: int) -> np.ndarray:
            """Returns int32[batch, width]: the `counts` values of each row, then zeros."""
            padded = np.zeros((len(rows), width), np.int32)
            padded[np.arange(width) < counts[:, None]] = np.concatenate(values)
            return padded

        per_example = functools.partial(spread, counts=num_examples, width=self.examples_per_row)
        a, b = per_example(a_lengths), per_example(b_lengths)
        is_example = np.arange(self.examples_per_row) < num_examples[:, None]
        lengths = np.where(is_example, example_lengths(a, b), 0)
        num_tokens = np.array([len(tokens) for tokens in ids])
        starts = (
            (np.cumsum(num_tokens) - num_tokens)[:, None] + np.cumsum(lengths, axis=1) - lengths
        )
        batch = token_fields(
            np.concatenate(ids), starts, lengths, a + 2, self.sequence_length, self.pad_id
        )
        batch["next_sentence_labels"] = per_example(labels)
        batch["next_sentence_weights"] = (b > 0).astype(np.float32)
        if self.max_predictions:
            num_masked = np.array([len(masked) for masked in positions])
            per_mask = functools.partial(spread, counts=num_masked, width=self.max_predictions)
            batch["masked_lm_positions"] = per_mask(positions)
            batch["masked_lm_ids"] = per_mask(masked_ids)
            is_mask = np.arange(self.max_predictions) < num_masked[:, None]
            batch["masked_lm_weights"] = is_mask.astype(np.float32)
        if self.mask_units:
            batch["mask_units"] = spread(units[0], num_tokens, self.sequence_length).astype(np.int8)
        return batch

    def more_statistics(self, token_counts: np.ndarray) -> dict[str, Any]:
        """Returns statistics in addition to those of `row_counts.RowCounts`: none."""
        del token_counts
        return {}
