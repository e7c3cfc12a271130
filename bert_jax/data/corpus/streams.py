"""Streams: the corpus as one sequence of slots, for language models that carry a state.

A sentence of n words fills n + 1 slots, and the sentences follow each other without padding. The
backward direction has the same sentence in the same slots, from its last word to its first. With
<S> and </S> for the tokenizer's `cls_id` and `sep_id`:

    input_ids      <S>   w1   w2    | <S>   w1
    next_ids       w1    w2   </S>  | w1    </S>      what follows the input
    reverse_ids    </S>  w2   w1    | </S>  w1
    previous_ids   w2    w1   <S>   | w1    <S>       what precedes it in the text

Row r has the slots r * L to (r + 1) * L - 1, wherever sentences begin and end, so the state
after row r is the state before row r + 1. Only the last row of a split has padding. Documents are
in an order drawn with `data.seed`, sentences in the order of their document.

A block of rows is the ids of its slots and of the slot after it, in both directions: a target is
the next input, except at the end of a sentence, where the next input begins another one.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.corpus.documents import DOCUMENT, Documents, id_dtype, read_pieces
from bert_jax.data.corpus.pairs import PAIR
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.permutation import permute
from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError

# The row that begins at a slot of a document, counted from 0 in each document.
STREAM_ROW = np.dtype([("document", "<u8"), ("slot", "<u8"), ("length", "<u2")])

_DOCUMENTS_IN_MEMORY = 1 << 18


@dataclasses.dataclass(frozen=True)
class StreamBlock:
    """Consecutive rows: the ids of their slots and of the slot after the last one."""

    input_ids: np.ndarray  # id[slots + 1]
    reverse_ids: np.ndarray  # id[slots + 1]
    sequence_length: int

    def to_bytes(self) -> bytes:
        header = np.array([self.input_ids.size], "<u4")
        return b"".join(x.tobytes() for x in (header, self.input_ids, self.reverse_ids))

    def row(self, number: int) -> tuple[np.ndarray, ...]:
        """Returns the ids of a row's slots and of the slot after them, in both directions."""
        start = number * self.sequence_length
        stop = start + self.sequence_length + 1
        return self.input_ids[start:stop], self.reverse_ids[start:stop]


@dataclasses.dataclass(frozen=True)
class StreamFormat:
    """The format of the rows of one sequence length; the same for all splits."""

    sequence_length: int
    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int
    unk_id: int
    # How many ids, from 0 on, are predicted; as targets, the others become the unknown word.
    num_words: int

    # Whether row r continues row r - 1.
    is_stream: ClassVar[bool] = True
    # The arrays of a padding row: no slots.
    padding: ClassVar[tuple[np.ndarray, ...]] = (np.empty(0, np.uint16),) * 2
    # Ids that are never predicted: none, since the end of a sentence is.
    unpredicted: ClassVar[tuple[int, ...]] = ()

    @property
    def id_dtype(self) -> np.dtype:
        return id_dtype(self.vocab_size)

    def read_block(self, data: bytes) -> StreamBlock:
        """Returns the block of `StreamBlock.to_bytes`.

        Raises:
          UserError: `data` is not a block of such ids.
        """
        (count,) = np.frombuffer(data, "<u4", 1).tolist()
        input_ids = np.frombuffer(data, self.id_dtype, count, 4)
        reverse_ids = np.frombuffer(data, self.id_dtype, count, 4 + input_ids.nbytes)
        if (size := 4 + 2 * input_ids.nbytes) != len(data):
            raise UserError(f"a block of {len(data)} bytes should have {size}")
        return StreamBlock(input_ids, reverse_ids, self.sequence_length)

    def make_batch(self, rows: Sequence[tuple[np.ndarray, ...]]) -> Batch:
        """Lays rows out in the batch form of streams.

        Args:
          rows: results of `StreamBlock.row` or `padding`.

        Returns:
          int32[batch, seq] `input_ids next_ids reverse_ids previous_ids`, `example_ids` (1, in
          padding 0) and float32[batch, seq] `target_weights` (the same).
        """
        forward, backward = zip(*rows, strict=True)
        num_slots = np.array([max(0, len(ids) - 1) for ids in forward])
        is_slot = np.arange(self.sequence_length) < num_slots[:, None]

        def directed(
            ids: Sequence[np.ndarray], first: int, last: int
        ) -> tuple[np.ndarray, np.ndarray]:
            """Returns inputs and targets; a sentence begins with `first` and ends with `last`."""
            table = np.full((len(rows), self.sequence_length + 1), self.pad_id, np.int32)
            for row, of_row in zip(table, ids, strict=True):
                row[: len(of_row)] = of_row
            targets = np.where(table[:, 1:] == first, last, table[:, 1:])
            padded = (np.where(is_slot, x, self.pad_id) for x in (table[:, :-1], targets))
            return tuple(x.astype(np.int32) for x in padded)  # pyright: ignore[reportReturnType]

        input_ids, next_ids = directed(forward, self.cls_id, self.sep_id)
        reverse_ids, previous_ids = directed(backward, self.sep_id, self.cls_id)
        return {
            "input_ids": input_ids,
            "next_ids": next_ids,
            "reverse_ids": reverse_ids,
            "previous_ids": previous_ids,
            "example_ids": is_slot.astype(np.int32),
            "target_weights": is_slot.astype(np.float32),
        }

    def more_statistics(self, token_counts: np.ndarray) -> dict[str, Any]:
        """Returns `log_uniform_loss`, the mean -log of the log-uniform probability of a target.

        The sampled softmax draws word k (from 0) of V with the probability log((k + 2) / (k + 1)) /
        log(V + 1). In nats; above log(V) a uniform choice of words would fit the text better.
        """
        words = np.arange(self.num_words)
        probabilities = np.log1p(1 / (words + 1)) / np.log(self.num_words + 1)
        losses = -np.log(probabilities) * token_counts[: self.num_words]
        return {"log_uniform_loss": float(losses.sum() / token_counts.sum())}


def write_order(source: str, path: str, key: str) -> None:
    """Writes the documents of a split in the order of a permutation.

    Args:
      source: a file of DOCUMENTs.
      path: the file to write.
      key: determines the permutation; see `permute`.
    """
    size = os.path.getsize(source) // DOCUMENT.itemsize
    documents = np.memmap(source, DOCUMENT, "r", shape=(size,))
    with whole_file(path) as part, open(part, "wb") as file:
        for first in range(0, size, _DOCUMENTS_IN_MEMORY):
            places = np.arange(first, min(first + _DOCUMENTS_IN_MEMORY, size))
            file.write(documents[permute(places, size, key)].tobytes())


def write_rows(documents: str, sequence_length: int, path: str) -> None:
    """Writes where the rows of a stream begin, as STREAM_ROWs.

    Args:
      documents: a file of DOCUMENTs, in the order of the stream.
      sequence_length: slots of a row.
      path: the file to write.
    """

    def pieces() -> Iterator[np.ndarray]:
        return read_pieces([documents], DOCUMENT, _DOCUMENTS_IN_MEMORY)

    num_slots = sum(int(_slots(piece).sum()) for piece in pieces())
    first_document = first_slot = 0  # of a piece
    with whole_file(path) as part, open(part, "wb") as file:
        for piece in pieces():
            slots = _slots(piece)
            ends = first_slot + np.cumsum(slots)
            first_row = -(-first_slot // sequence_length)
            begins = np.arange(first_row * sequence_length, ends[-1], sequence_length)
            places = np.searchsorted(ends, begins, side="right")
            rows = np.empty(begins.size, STREAM_ROW)
            rows["document"] = first_document + places
            rows["slot"] = begins - (ends - slots)[places]
            rows["length"] = np.minimum(sequence_length, num_slots - begins)
            file.write(rows.tobytes())
            first_document, first_slot = first_document + piece.size, int(ends[-1])


def _slots(documents: np.ndarray) -> np.ndarray:
    """DOCUMENT[documents] -> int64[documents], one slot more than words for each sentence."""
    return (documents["num_tokens"] + documents["num_sentences"]).astype(np.int64)


def make_block(
    documents: Documents, items: np.ndarray, form: StreamFormat, counts: RowCounts
) -> StreamBlock:
    """Returns consecutive rows as a block, and counts their targets in the forward direction.

    Args:
      documents: the token store, in the order of the stream.
      items: STREAM_ROW[rows].
      form: format of the rows.
      counts: counts of a shard.
    """
    document, slot = int(items["document"][0]), int(items["slot"][0])
    todo = int(items["length"].sum(dtype=np.int64)) + 1
    forward, backward = [], []
    while todo and document < len(documents):
        ids, reverse_ids = _read_slots(documents, document, slot, todo, form)
        forward.append(ids)
        backward.append(reverse_ids)
        todo, document, slot = todo - ids.size, document + 1, 0
    if todo:  # the end of the corpus, where a sentence ends too
        forward.append(np.array([form.cls_id], form.id_dtype))
        backward.append(np.array([form.sep_id], form.id_dtype))
    block = StreamBlock(np.concatenate(forward), np.concatenate(backward), form.sequence_length)
    rows = np.zeros(items.size, PAIR)
    rows["a_length"] = items["length"]
    following = block.input_ids[1:]
    targets = np.where(following == form.cls_id, form.sep_id, following)
    known = np.where(targets < form.num_words, targets, form.unk_id)
    counts.add(rows, known, items["length"])
    return block


def _read_slots(
    documents: Documents, document: int, slot: int, count: int, form: StreamFormat
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of at most `count` slots of a document from `slot` on, in both directions."""
    starts, slot_starts = _sentence_starts(documents, document)
    first = int(np.searchsorted(slot_starts, slot, side="right")) - 1
    last = int(np.searchsorted(slot_starts, slot + count, side="left"))
    last = min(last, len(starts) - 1)
    starts = starts[first : last + 1]
    words = documents.tokens(int(starts[0]), int(starts[-1] - starts[0]))
    words = np.frombuffer(words, form.id_dtype)
    sentences = np.arange(len(starts) - 1)
    bounds = starts - starts[0]
    begins = bounds[:-1] + sentences  # the slot of <S> or </S> of each sentence
    sentence_of = np.repeat(sentences, np.diff(bounds))
    places = np.arange(words.size)
    forward = np.empty(words.size + sentences.size, form.id_dtype)
    backward = forward.copy()
    forward[begins], backward[begins] = form.cls_id, form.sep_id
    forward[places + sentence_of + 1] = words
    backward[begins[sentence_of] + bounds[1:][sentence_of] - places] = words
    begin = slot - int(slot_starts[first])
    return forward[begin : begin + count], backward[begin : begin + count]


@functools.lru_cache(4)  # a long document is read in many blocks
def _sentence_starts(documents: Documents, document: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int64[sentences + 1] where sentences begin, in the token store and in slots."""
    starts = np.array(documents.starts(document), np.int64)
    return starts, starts - starts[0] + np.arange(len(starts))
