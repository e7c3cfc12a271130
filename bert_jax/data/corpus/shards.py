"""Rows on disk: ArrayRecord files of blocks of rows, with random access.

A record is a block of 256 rows: the time of a random read of a record is proportional to the number
of records in its file, which blocks keep small.
"""

import dataclasses
import errno
import functools
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bert_jax.config.data import DataConfig
from bert_jax.data.batch import Batch
from bert_jax.data.corpus.blocks import Block, RowFormat, example_lengths
from bert_jax.data.corpus.documents import Documents
from bert_jax.data.corpus.pairs import PAIR, RUN, RUNNING, Run
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.static_instances import KEEP
from bert_jax.data.corpus.streams import StreamBlock, StreamFormat, make_block
from bert_jax.files.atomic import whole_file
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.text.lexicon import PhraseMatcher
from bert_jax.text.tokenization import Tokenizer

ROWS_PER_BLOCK = 256
# Tokens of one file, about 30 MB with uint16 ids. It must not depend on the number of processes.
TOKENS_PER_FILE = 1 << 24

# No compression, so that the bytes do not depend on the version of a compressor.
_WRITER_OPTIONS = "group_size:1,uncompressed,max_parallelism:1"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_CACHED_BLOCKS = 288
_OPEN_FILES = 64


def rows_per_file(sequence_length: int) -> int:
    blocks = max(1, TOKENS_PER_FILE // (ROWS_PER_BLOCK * sequence_length))
    return blocks * ROWS_PER_BLOCK


@dataclasses.dataclass(frozen=True)
class Records:
    """A file of the examples of rows, as places in the token store.

    Attributes:
      path: the file.
      dtype: pairs (pairs.PAIR), pairs with masks (static_instances.instance_dtype), runs
        (pairs.RUN), running text (pairs.RUNNING) or rows of a stream (streams.STREAM_ROW).
      sizes: file of uint8[rows], the records of each row; "": each row is one record.
    """

    path: str
    dtype: np.dtype
    sizes: str = ""

    @property
    def num_rows(self) -> int:
        if self.sizes:
            return os.path.getsize(self.sizes)
        return os.path.getsize(self.path) // self.dtype.itemsize

    def items(self) -> np.ndarray:
        """Returns all records, mapped into memory."""
        return np.memmap(self.path, self.dtype, "r")

    def blocks(self, rows: range) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (records, uint8[rows] records per row) for each block of rows."""
        sizes, start = np.ones(len(rows), np.uint8), rows.start
        if self.sizes:
            sizes = np.fromfile(self.sizes, np.uint8, len(rows), offset=rows.start)
            start = int(np.fromfile(self.sizes, np.uint8, rows.start).sum(dtype=np.int64))
        for first in range(0, len(rows), ROWS_PER_BLOCK):
            of_block = sizes[first : first + ROWS_PER_BLOCK]
            count = int(of_block.sum(dtype=np.int64))
            offset = start * self.dtype.itemsize
            yield np.fromfile(self.path, self.dtype, count, offset=offset), of_block
            start += count


def make_form(
    config: DataConfig, tokenizer: Tokenizer, sequence_length: int
) -> RowFormat | StreamFormat:
    """Returns the format of the rows of one sequence length."""
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "cls_id", "sep_id")}
    vocab_size = len(tokenizer.pieces)
    if config.segments == "stream":
        num_words = min(config.vocab_size, vocab_size)
        unk_id = tokenizer.unk_id
        return StreamFormat(sequence_length, vocab_size, **ids, unk_id=unk_id, num_words=num_words)
    index = config.sequence_lengths.index(sequence_length)
    is_static = config.mode == "static"
    return RowFormat(
        sequence_length,
        examples_per_row=config.max_examples_per_row,
        max_predictions=config.num_predictions[index] if is_static else 0,
        vocab_size=vocab_size,
        **ids,
        end_id=tokenizer.end_id,
        mask_units=config.masking == "phrase" and not is_static,
    )


def write_shard(
    documents: Documents,
    records: Records,
    rows: range,
    form: RowFormat | StreamFormat,
    path: str,
    matcher: PhraseMatcher | None = None,
) -> dict[str, Any]:
    """Writes rows to an ArrayRecord file, complete or not at all.

    Args:
      documents: the token store of the records.
      records: the examples of all rows.
      rows: the rows to write.
      form: format of the rows.
      path: the file to write.
      matcher: finds the phrases that are masked as units, if any.

    Returns:
      JSON: `name rows bytes sha256` of the file, and the `counts` of its rows.

    Raises:
      OSError: the file cannot be written, for example because the disk is full.
    """
    counts = RowCounts(form.vocab_size)
    with whole_file(path) as part:
        try:
            writer = ArrayRecordWriter(part, _WRITER_OPTIONS)
            for items, sizes in records.blocks(rows):
                if isinstance(form, StreamFormat):
                    block: Any = make_block(documents, items, form, counts)
                else:
                    block = _make_block(documents, items, form, counts, matcher, sizes)
                writer.write(block.to_bytes())
            writer.close()
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error), path) from error
        size, sha256 = os.path.getsize(part), file_sha256(part)
    return {
        "name": os.path.basename(path),
        "rows": len(rows),
        "bytes": size,
        "sha256": sha256,
        "counts": counts.to_json(),
    }


def _read_spans(
    documents: Documents, items: np.ndarray, form: RowFormat
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the examples as PAIR[examples], and id[tokens], all their tokens in order."""
    cls, sep, end = (
        form.id_dtype.type(i).tobytes() for i in (form.cls_id, form.sep_id, form.end_id)
    )
    if items.dtype in (RUN, RUNNING):
        pairs = np.zeros(items.size, PAIR)  # without B
        pairs["a_length"] = items["length"]
    else:
        pairs = items
    if items.dtype == RUN:
        runs = (documents.run(*Run(*item), sep) for item in items.tolist())
        parts = [part for run in runs for part in (cls, run, end)]
    elif items.dtype == RUNNING:
        # Blocks store the lengths without the two special tokens of `[CLS] A [SEP]`.
        pairs["a_length"] -= 2
        parts = []
        for document, start, length, after_separator in items.tolist():
            parts.append(sep if after_separator else b"")
            parts.append(documents.run(document, start, length - after_separator, sep))
    else:
        spans = (pairs[name].tolist() for name in ("a_start", "a_length", "b_start", "b_length"))
        parts = [
            part
            for a, a_size, b, b_size in zip(*spans, strict=True)
            for part in (cls, documents.tokens(a, a_size), sep, documents.tokens(b, b_size), end)
        ]
    return pairs, np.frombuffer(bytearray().join(parts), form.id_dtype)


def _make_block(
    documents: Documents,
    items: np.ndarray,
    form: RowFormat,
    counts: RowCounts,
    matcher: PhraseMatcher | None,
    sizes: np.ndarray,
) -> Block:
    """Returns rows as a block, with static masks if they have any; `sizes` as in `Records`."""
    pairs, input_ids = _read_spans(documents, items, form)
    lengths = example_lengths(pairs["a_length"], pairs["b_length"])
    first_of_rows = np.cumsum(sizes, dtype=np.int64) - sizes
    counts.add(pairs, input_ids, np.add.reduceat(lengths, first_of_rows))
    has_masks = form.max_predictions > 0
    num_masked, positions = np.zeros(len(sizes), "<u2"), np.empty(0, "<u2")
    places, replacements = np.empty(0, np.int64), np.empty(0, "<u4")
    if has_masks:
        of_items = items["num_masked"]
        is_mask = np.arange(form.max_predictions) < of_items[:, None]
        positions, replacements = items["masked_positions"][is_mask], items["replacements"][is_mask]
        begins = np.cumsum(lengths) - lengths
        places = np.repeat(begins, of_items) + positions
        in_row = begins - np.repeat(begins[first_of_rows], sizes)
        positions = (positions + np.repeat(in_row, of_items)).astype("<u2")
        num_masked = np.add.reduceat(of_items, first_of_rows, dtype="<u2")
    units = None
    if matcher is not None:
        codes = matcher.match(input_ids)
        counts.sums.update(matcher.count(input_ids, codes, places if has_masks else None))
        units = matcher.stored[codes] if form.mask_units else None
    masked_ids = input_ids[places]
    input_ids[places] = np.where(replacements == KEEP, masked_ids, replacements)
    return Block(
        input_ids=input_ids,
        masked_lm_ids=masked_ids,
        masked_lm_positions=positions,
        a_lengths=pairs["a_length"],
        b_lengths=pairs["b_length"],
        num_masked=num_masked,
        num_examples=sizes,
        next_sentence_labels=pairs["is_random_next"].astype(np.uint8),
        mask_units=units,
    )


def lengths_of(items: np.ndarray) -> np.ndarray:
    """Returns int64[items], the tokens of the examples of pairs, instances or runs."""
    if items.dtype == RUN:
        return items["length"].astype(np.int64) + 2
    return example_lengths(items["a_length"], items["b_length"])


class ShardRows:
    """The rows of one split at one sequence length, with random access. Threads may share it."""

    def __init__(
        self, paths: Sequence[str], num_rows: Sequence[int], form: RowFormat | StreamFormat
    ):
        self.form = form
        self._paths = paths
        self._length = sum(num_rows)
        # All blocks are full, except the last block of the last file.
        blocks = itertools.accumulate((-(-n // ROWS_PER_BLOCK) for n in num_rows), initial=0)
        self._first_blocks = np.array(list(blocks))
        self._lock = threading.Lock()
        self._reader = functools.lru_cache(_OPEN_FILES)(self._open)
        self.cache_blocks(_CACHED_BLOCKS)

    def __len__(self) -> int:
        return self._length

    def cache_blocks(self, count: int) -> None:
        """Keeps the `count` most recently read blocks in memory."""
        self._block = functools.lru_cache(count)(self._load)

    def read(self, indices: np.ndarray) -> Batch:
        """Returns the batch form (`form.make_batch`) of the rows int[batch]; -1 is padding.

        Raises:
          IndexError: there is no such row.
          UserError: a shard is corrupt.
        """
        indices = np.asarray(indices)
        if indices.size and not -1 <= indices.min() <= indices.max() < self._length:
            raise IndexError(f"Rows are numbered from 0 to {self._length - 1}.")
        return self.form.make_batch([self._row(index) for index in indices.tolist()])

    def _row(self, index: int) -> tuple[np.ndarray, ...]:
        if index < 0:
            return self.form.padding
        return self._block(index // ROWS_PER_BLOCK).row(index % ROWS_PER_BLOCK)

    def _load(self, block: int) -> Block | StreamBlock:
        file = int(np.searchsorted(self._first_blocks, block, side="right")) - 1
        try:
            with self._lock:
                (data,) = self._reader(file).read([block - int(self._first_blocks[file])])
            return self.form.read_block(data)
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"The shard {self._paths[file]} is corrupt ({error}): delete manifest.json in its"
                " folder and prepare the data again."
            ) from error

    def _open(self, file: int) -> ArrayRecordReader:
        return ArrayRecordReader(
            self._paths[file], _READER_OPTIONS, file_reader_buffer_size=1 << 16
        )
