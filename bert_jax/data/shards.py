"""Rows on disk: ArrayRecord files of blocks of rows, read at random.

A row is one or several examples `[CLS] A [SEP] B [SEP]`, one after the other; what is stored has
no padding. 256 rows make a block, a block is one record: a random read of a record costs time in
proportion to the number of records in its file, and with blocks that number stays small.
"""

import dataclasses
import errno
import functools
import hashlib
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bert_jax.data.atomic import whole_file
from bert_jax.data.documents import Documents, id_dtype
from bert_jax.data.static_instances import KEEP
from bert_jax.data.statistics import RowCounts

ROWS_PER_BLOCK = 256
# Of one file: some 30 MB with uint16 ids. It must not depend on the number of processes.
TOKENS_PER_FILE = 1 << 24

# No compression: the bytes then do not depend on a compressor's version.
_WRITER_OPTIONS = "group_size:1,uncompressed,max_parallelism:1"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_CACHED_BLOCKS = 288
_OPEN_FILES = 64


def rows_per_file(sequence_length: int) -> int:
    blocks = max(1, TOKENS_PER_FILE // (ROWS_PER_BLOCK * sequence_length))
    return blocks * ROWS_PER_BLOCK


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
    b_lengths: np.ndarray  # uint16[examples]
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
        lengths = self.a_lengths.astype(np.int64) + self.b_lengths + 3
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


def make_batch(rows: Sequence[tuple[np.ndarray, ...]], form: RowFormat) -> dict[str, np.ndarray]:
    """Lays rows out in the batch form.

    Args:
      rows: as Block.row gives them; a row of six empty arrays becomes padding of weight zero.
      form: of the rows.

    Returns:
      int32[batch, seq] `input_ids token_type_ids position_ids example_ids` (0: padding, else the
      example of the row from 1 on), int32[batch, N] `cls_positions next_sentence_labels`,
      float32[batch, N] `next_sentence_weights`; with masks also int32[batch, P]
      `masked_lm_positions masked_lm_ids` and float32[batch, P] `masked_lm_weights`.
    """
    ids, a_lengths, b_lengths, labels, positions, masked_ids = zip(*rows, strict=True)
    num_examples = np.array([len(lengths) for lengths in a_lengths])
    a, b = np.concatenate(a_lengths).astype(np.int64), np.concatenate(b_lengths).astype(np.int64)
    lengths = a + b + 3
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
        "next_sentence_weights": per_example(np.ones(row.size)).astype(np.float32),
    }
    if form.max_predictions:
        num_masked = np.array([len(masked) for masked in positions])
        per_mask = functools.partial(spread, counts=num_masked, width=form.max_predictions)
        batch["masked_lm_positions"] = per_mask(np.concatenate(positions))
        batch["masked_lm_ids"] = per_mask(np.concatenate(masked_ids))
        batch["masked_lm_weights"] = per_mask(np.ones(num_masked.sum())).astype(np.float32)
    return batch


def write_shard(
    documents: Documents,
    records: str,
    dtype: np.dtype,
    bounds: tuple[int, int],
    form: RowFormat,
    path: str,
) -> dict[str, Any]:
    """Writes rows to an ArrayRecord file, whole or not at all.

    Args:
      documents: where the tokens of the pairs are.
      records: a file of pairs (pairs.PAIR) or of instances (static_instances.instance_dtype).
      dtype: of its items.
      bounds: numbers of the first item to write and of the one after the last.
      form: of the rows.
      path: the file to write.

    Returns:
      JSON: `name rows bytes sha256` of the file, and the `counts` of its rows.

    Raises:
      OSError: the file cannot be written, for example because the disk is full.
    """
    counts = RowCounts(form.vocab_size)
    with whole_file(path) as part:
        try:
            writer = ArrayRecordWriter(part, _WRITER_OPTIONS)
            for first in range(*bounds, ROWS_PER_BLOCK):
                size = min(ROWS_PER_BLOCK, bounds[1] - first)
                items = np.fromfile(records, dtype, size, offset=first * dtype.itemsize)
                writer.write(_make_block(documents, items, form, counts).to_bytes())
            writer.close()
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error), path) from error
        facts = {"bytes": os.path.getsize(part), "sha256": file_sha256(part)}
    name, rows = os.path.basename(path), bounds[1] - bounds[0]
    return {"name": name, "rows": rows, **facts, "counts": counts.to_json()}


def _make_block(
    documents: Documents, items: np.ndarray, form: RowFormat, counts: RowCounts
) -> Block:
    """Turns spans of the token store into rows of one example each."""
    has_masks = form.max_predictions > 0
    pairs = items["pair"] if has_masks else items
    cls, sep = (form.id_dtype.type(i).tobytes() for i in (form.cls_id, form.sep_id))
    spans = (pairs[name].tolist() for name in ("a_start", "a_length", "b_start", "b_length"))
    tokens = [
        part
        for a, a_length, b, b_length in zip(*spans, strict=True)
        for part in (cls, documents.tokens(a, a_length), sep, documents.tokens(b, b_length), sep)
    ]
    input_ids = np.frombuffer(bytearray().join(tokens), form.id_dtype)
    counts.add(pairs, input_ids)
    num_masked, positions = np.zeros(len(items), "<u2"), np.empty(0, "<u2")
    masked_ids = np.empty(0, form.id_dtype)
    if has_masks:
        num_masked = items["num_masked"]
        is_mask = np.arange(form.max_predictions) < num_masked[:, None]
        positions, replacements = items["masked_positions"][is_mask], items["replacements"][is_mask]
        lengths = pairs["a_length"].astype(np.int64) + pairs["b_length"] + 3
        places = np.repeat(np.cumsum(lengths) - lengths, num_masked) + positions
        masked_ids = input_ids[places]
        input_ids[places] = np.where(replacements == KEEP, masked_ids, replacements)
    return Block(
        input_ids=input_ids,
        masked_lm_ids=masked_ids,
        masked_lm_positions=positions,
        a_lengths=pairs["a_length"],
        b_lengths=pairs["b_length"],
        num_masked=num_masked,
        num_examples=np.ones(len(items), np.uint8),
        next_sentence_labels=pairs["is_random_next"].astype(np.uint8),
    )


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Rows:
    """Random access to the rows of one split at one sequence length. Threads may share it.

    Args:
      paths: the shards, in order.
      num_rows: of each of them.
      form: of the rows.
    """

    def __init__(self, paths: Sequence[str], num_rows: Sequence[int], form: RowFormat):
        self.form = form
        self._paths = paths
        self._length = sum(num_rows)
        # Rows of one file fill their blocks, but for the last block of the last file.
        blocks = itertools.accumulate((-(-n // ROWS_PER_BLOCK) for n in num_rows), initial=0)
        self._first_blocks = np.array(list(blocks))
        self._lock = threading.Lock()
        self._reader = functools.lru_cache(_OPEN_FILES)(self._open)
        self._block = functools.lru_cache(_CACHED_BLOCKS)(self._load)

    def __len__(self) -> int:
        return self._length

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the batch form (see make_batch) of the rows int[batch]; -1 is padding.

        Raises:
          IndexError: there is no such row.
          ValueError: a shard is damaged.
        """
        indices = np.asarray(indices)
        if indices.size and not -1 <= indices.min() <= indices.max() < self._length:
            raise IndexError(f"Rows are numbered from 0 to {self._length - 1}.")
        return make_batch([self._row(index) for index in indices.tolist()], self.form)

    def _row(self, index: int) -> tuple[np.ndarray, ...]:
        if index < 0:
            return (np.empty(0, np.uint16),) * 6
        return self._block(index // ROWS_PER_BLOCK).row(index % ROWS_PER_BLOCK)

    def _load(self, block: int) -> Block:
        file = int(np.searchsorted(self._first_blocks, block, side="right")) - 1
        try:
            with self._lock:
                (data,) = self._reader(file).read([block - int(self._first_blocks[file])])
            return Block.from_bytes(data, self.form.id_dtype)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"The shard {self._paths[file]} is damaged ({error}): delete the manifest.json"
                " beside it and prepare the data again."
            ) from error

    def _open(self, file: int) -> ArrayRecordReader:
        return ArrayRecordReader(
            self._paths[file], _READER_OPTIONS, file_reader_buffer_size=1 << 16
        )
