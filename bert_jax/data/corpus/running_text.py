"""Rows of running text, cut wherever a row is full, and the words and characters of that text.

GPT was trained on contiguous sequences of 512 tokens (Radford et al. 2018, section 4.1), without
regard to the boundaries of sentences and without special tokens around a sequence. A separator
between documents is added here, since documents may be short: it tells the model that the text
before is over, and its probability is that of the end of a document.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.data.corpus.documents import DOCUMENT, TEXT, read_pieces
from bert_jax.data.corpus.pairs import RUN, SentenceLengths

RUNNING = np.dtype([*RUN.descr, ("after_separator", "?")])
_RUNNING = struct.Struct("<QQH?")


class RunningText(NamedTuple):
    """A row that is `length` tokens of running text and nothing else."""

    # The number of the document that it begins in, and where in the token store.
    document: int
    start: int
    # Separators included, also the one in front.
    length: int
    # Whether the row begins with the separator in front of the document.
    after_separator: bool

    def to_bytes(self) -> bytes:
        """One item of dtype RUNNING."""
        return _RUNNING.pack(*self)


def running_text(
    documents: SentenceLengths, unit: tuple[int, int], sequence_length: int
) -> Iterator[RunningText]:
    """Cuts documents unit[0] to unit[1] - 1, as one stream of tokens, into rows.

    The stream is a separator, the first document, a separator, the second document, ..., and a
    separator at the end; it is cut wherever a row is full. The last token of a row is also the
    first of the next, so that a model which predicts each token of a row but the first one predicts
    every token of the documents, and the separator after each of them, exactly once. Only the last
    row of a unit may be shorter, with at least two tokens. Nothing is random.
    """
    step = sequence_length - 1
    waiting: list[tuple[int, RunningText]] = []  # rows that may end in a later document
    next_row, separator, end = 0, 0, 1  # places in the stream
    for number in range(*unit):
        start = documents.starts(number, 0, 0)[0]
        stop = documents.starts(number, documents.num_sentences(number), 0)[0]
        end = separator + stop - start + 2  # after the separator that ends the document
        while next_row < end - 1:
            into = max(0, next_row - separator - 1)
            row = RunningText(number, start + into, sequence_length, next_row == separator)
            waiting.append((next_row, row))
            next_row += step
        while waiting and waiting[0][0] + sequence_length <= end:
            yield waiting.pop(0)[1]
        separator = end - 1
    for place, row in waiting:
        yield row._replace(length=end - place)


def text_counts(folder: str, split: str) -> dict[str, int]:
    """Returns what the rows of a split predict, and how much text that is.

    Args:
      folder: written by `join_chunks` and `split_documents`, with the file `text`.
      split: a name in documents.SPLITS.

    Returns:
      `words`, runs of characters between white space; `characters`, white space within sentences
      included; `predicted_tokens`, those of all documents and a separator after each of them.
    """
    records = list(read_pieces([os.path.join(folder, split)], DOCUMENT))
    chosen = np.concatenate([np.empty(0, "<u8"), *(part["first_sentence"] for part in records)])
    num_tokens = sum(int(part["num_tokens"].sum()) for part in records)
    counts = {"words": 0, "characters": 0, "predicted_tokens": num_tokens + chosen.size}
    documents = read_pieces([os.path.join(folder, "documents")], DOCUMENT)
    for part, sizes in zip(
        documents, read_pieces([os.path.join(folder, "text")], TEXT), strict=True
    ):
        is_chosen = np.isin(part["first_sentence"], chosen)
        counts["words"] += int(sizes["words"][is_chosen].sum())
        counts["characters"] += int(sizes["characters"][is_chosen].sum())
    return counts
