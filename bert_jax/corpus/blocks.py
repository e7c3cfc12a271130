"""Blocks of rows as flat arrays and as bytes, and rows laid out as a batch.

A row is one or several examples `[CLS] A [SEP] B [SEP]`, one after the other, without padding. An
example without B is `[CLS] A [SEP]`.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bert_jax.corpus.documents import id_dtype


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """What a row of one sequence length looks like; the same for all splits."""

    sequence_length: int
    # The most that a row may hold: N of the batch form.
    examples_per_row: int
    # The most masked positions of a row, P of the batch form; 0: masks are not stored.
    max_predictions: int
    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int

    @property
    def id_dtype(self) -> np.dtype:
        return id_dtype(self.vocab_size)


# Name, type (None: of ids) and what it is counted by of the arrays of a block, as they lie on disk.
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


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of different lengths, one after the other in flat arrays."""

    input_ids: np.ndarray  # id[tokens], special tokens included
    masked_lm_ids: np.ndarray  # id[masked]
    masked_lm_positions: np.ndarray  # uint16[masked], in the row
    a_lengths: np.ndarray  # uint16[examples], without special tokens
    b_lengths: np.ndarray  # uint16[examples]; 0: no B
    num_masked: np.ndarray  # uint16[rows]
    num_examples: np.ndarray  # uint8[rows]
    next_sentence_labels: np.ndarray  # uint8[examples]

    def to_bytes(self) -> bytes:
        arrays = [getattr(self, name) for name, _, _ in _FIELDS]
        counts = {count: array.size for (_, _, count), array in zip(_FIELDS, arrays, strict=True)}
        header = np.array([counts[count] for count in _COUNTS], "<u4")
        return b"".join(array.tobytes() for array in (header, *arrays))

    @classmethod
    def from_bytes(cls, data: bytes, id_dtype: np.dtype) -> "Block":
        """Raises ValueError if `data` is no block of such ids."""
        header = np.frombuffer(data, "<u4", 4).tolist()
        counts: dict[str, int] = dict(zip(_COUNTS, header, strict=True))
        arrays, offset = {}, 16
        for name, dtype, count in _FIELDS:
            arrays[name] = np.frombuffer(data, dtype or id_dtype, counts[count], offset)
            offset += arrays[name].nbytes
        if offset != len(data):
            raise ValueError(f"a block of {len(data)} bytes should have {offset}")
        return cls(**arrays)

    @functools.cached_property
    def _bounds(self) -> tuple[list[int], list[int], list[int]]:
        """Where the examples, tokens and masks of each row begin, and the last ones end."""
        examples = np.append(0, np.cumsum(self.num_examples, dtype=np.int64))
        lengths = example_lengths(self.a_lengths, self.b_lengths)
        tokens = np.append(0, np.cumsum(lengths))[examples]
        masked = np.append(0, np.cumsum(self.num_masked, dtype=np.int64))
        return examples.tolist(), tokens.tolist(), masked.tolist()

    def row(self, number: int) -> tuple[np.ndarray, ...]:
        """Input ids; lengths of A, of B and labels of the examples; masked positions and ids."""
        examples, tokens, masked = self._bounds
        example = slice(examples[number], examples[number + 1])
        mask = slice(masked[number], masked[number + 1])
        return (
            self.input_ids[tokens[number] : tokens[number + 1]],
            self.a_lengths[example],
            self.b_lengths[example],
            self.next_sentence_labels[example],
            self.masked_lm_positions[mask],
            self.masked_lm_ids[mask],
        )


def example_lengths(a_lengths: np.ndarray, b_lengths: np.ndarray) -> np.ndarray:
    """int64[examples], with [CLS], and [SEP] after A and after B, if there is one."""
    return a_lengths.astype(np.int64) + b_lengths + 2 + (b_lengths > 0)


def make_batch(rows: Sequence[tuple[np.ndarray, ...]], form: RowFormat) -> dict[str, np.ndarray]:
    """Lays rows out in the batch form.

    Args:
      rows: as Block.row gives them; a row of six empty arrays becomes padding of weight zero.
      form: of the rows.

    Returns:
      int32[batch, seq] `input_ids token_type_ids position_ids example_ids` (0: padding, else the
      example of the row from 1 on), int32[batch, N] `cls_positions next_sentence_labels`,
      float32[batch, N] `next_sentence_weights` (0 without a B); with masks also int32[batch, P]
      `masked_lm_positions masked_lm_ids` and float32[batch, P] `masked_lm_weights`.
    """
    ids, a_lengths, b_lengths, labels, positions, masked_ids = zip(*rows, strict=True)
    num_examples = np.array([len(lengths) for lengths in a_lengths])
    a, b = np.concatenate(a_lengths).astype(np.int64), np.concatenate(b_lengths).astype(np.int64)
    lengths = example_lengths(a, b)
    # Of each example, its row and its number in the row; of each token, its example and its place.
    row = np.repeat(np.arange(len(rows)), num_examples)
    number = np.arange(row.size) - np.repeat(np.cumsum(num_examples) - num_examples, num_examples)
    example = np.repeat(np.arange(row.size), lengths)
    starts = np.cumsum(lengths) - lengths
    place = np.arange(example.size) - starts[example]
    num_tokens = np.array([len(tokens) for tokens in ids])

    def spread(flat: np.ndarray, counts: np.ndarray, width: int, fill: int = 0) -> np.ndarray:
        """Flat values of rows with `counts` values each -> int32[batch, width]."""
        padded = np.full((len(rows), width), fill, np.int32)
        padded[np.arange(width) < counts[:, None]] = flat
        return padded

    def per_token(flat: np.ndarray, fill: int = 0) -> np.ndarray:
        return spread(flat, num_tokens, form.sequence_length, fill)

    def per_example(flat: np.ndarray) -> np.ndarray:
        return spread(flat, num_examples, form.examples_per_row)

    batch = {
        "input_ids": per_token(np.concatenate(ids), form.pad_id),
        "token_type_ids": per_token(place >= a[example] + 2),
        "position_ids": per_token(place),
        "example_ids": per_token(number[example] + 1),
        "cls_positions": per_example(starts - (np.cumsum(num_tokens) - num_tokens)[row]),
        "next_sentence_labels": per_example(np.concatenate(labels)),
        "next_sentence_weights": per_example(b > 0).astype(np.float32),
    }
    if form.max_predictions:
        num_masked = np.array([len(masked) for masked in positions])
        per_mask = functools.partial(spread, counts=num_masked, width=form.max_predictions)
        batch["masked_lm_positions"] = per_mask(np.concatenate(positions))
        batch["masked_lm_ids"] = per_mask(np.concatenate(masked_ids))
        batch["masked_lm_weights"] = per_mask(np.ones(num_masked.sum())).astype(np.float32)
    return batch
