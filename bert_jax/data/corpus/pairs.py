"""Samples pairs of segments (A, B) for next sentence prediction, or rows of full sentences.

Devlin et al. 2019, section 3.1 and appendix A.2, as google-research/bert's
`create_pretraining_data.py` (commit eedf571) does it. A segment is a run of whole sentences of one
document, so a pair is two spans of the token store, and sampling needs the lengths of sentences
only, never a token.
"""

import random
import struct
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

# How often the released program draws again for a document other than the pair's own.
RELEASED_TRIES = 10

PAIR = np.dtype(
    [
        *(("a_start", "<u8"), ("a_length", "<u2"), ("b_start", "<u8"), ("b_length", "<u2")),
        *(("is_random_next", "?"), ("num_truncated", "<u4")),
    ]
)
_PAIR = struct.Struct("<QHQH?I")


class Pair(NamedTuple):
    """Two spans of the token store."""

    a_start: int
    a_length: int
    b_start: int
    b_length: int
    # Whether B comes from another document (label 1), or follows A in its own (label 0).
    is_random_next: bool
    # Tokens cut off to make the pair fit.
    num_truncated: int

    def to_bytes(self) -> bytes:
        """One item of dtype PAIR."""
        return _PAIR.pack(*self)


RUN = np.dtype([("document", "<u8"), ("start", "<u8"), ("length", "<u2")])
_RUN = struct.Struct("<QQH")


class Run(NamedTuple):
    """Tokens one after the other, with a separator between documents (documents.Documents.run)."""

    # The number of the document that it begins in, and where in the token store.
    document: int
    start: int
    # Separators included.
    length: int

    def to_bytes(self) -> bytes:
        """One item of dtype RUN."""
        return _RUN.pack(*self)


class SentenceLengths(Protocol):
    """The part of documents.Documents that sampling needs."""

    def __len__(self) -> int: ...

    def num_sentences(self, document: int) -> int: ...

    def starts(self, document: int, first: int = 0, count: int | None = None) -> Sequence[int]: ...


def sample_pairs(
    documents: SentenceLengths,
    document: int,
    rng: random.Random,
    max_num_tokens: int,
    short_seq_prob: float,
    max_tries: int,
) -> Iterator[Pair]:
    """Cuts a document into pairs, from its first sentence to its last.

    The random numbers are drawn in the order of the released program, and those of a pair when the
    generator advances, so that what the caller draws in between is in the same stream.

    Args:
      documents: two or more; random next sentences come from any of them.
      document: number of the document to cut.
      rng: the stream of random numbers.
      max_num_tokens: most tokens of A and B together.
      short_seq_prob: probability that the document is cut to a shorter length, uniformly drawn.
      max_tries: how often a document is drawn for a random next sentence. If all draws give this
        document, it is used, with the label of a random next sentence.
    """
    # The target is drawn once for the document; it is approximate, max_num_tokens is a limit.
    target = max_num_tokens
    if rng.random() < short_seq_prob:
        target = rng.randint(2, max_num_tokens)
    starts = documents.starts(document)
    num_sentences = len(starts) - 1
    first = 0
    while first < num_sentences:
        # Sentences first .. last - 1 reach the target, or the end of the document.
        last = min(bisect_left(starts, starts[first] + target, first + 1), num_sentences)
        middle = first + (rng.randint(1, last - first - 1) if last - first > 1 else 1)
        a_start, a_stop = starts[first], starts[middle]
        is_random_next = last - first == 1 or rng.random() < 0.5
        if is_random_next:
            target_b = target - (a_stop - a_start)
            b_start, b_stop = _random_span(documents, document, rng, target_b, max_tries)
            # The actual next sentences are left for the next pair.
            last = middle
        else:
            b_start, b_stop = a_stop, starts[last]
        yield _truncate(a_start, a_stop, b_start, b_stop, is_random_next, max_num_tokens, rng)
        first = last


def _random_span(
    documents: SentenceLengths, document: int, rng: random.Random, target: int, max_tries: int
) -> tuple[int, int]:
    """Returns a span of another document, from a random sentence to `target` tokens or its end."""
    other = document
    for _ in range(max_tries):
        other = rng.randint(0, len(documents) - 1)
        if other != document:
            break
    first = rng.randint(0, documents.num_sentences(other) - 1)
    # A sentence has at least one token, so that `target` sentences are enough.
    starts = documents.starts(other, first, max(1, target))
    last = min(bisect_left(starts, starts[0] + target, 1), len(starts) - 1)
    return starts[0], starts[last]


def _truncate(
    a_start: int,
    a_stop: int,
    b_start: int,
    b_stop: int,
    is_random_next: bool,
    max_num_tokens: int,
    rng: random.Random,
) -> Pair:
    """Removes tokens of the longer segment (B if equal), each at a random end, until both fit."""
    a_length, b_length = a_stop - a_start, b_stop - b_start
    excess = max(0, a_length + b_length - max_num_tokens)
    draw = rng.random
    for _ in range(excess):
        if a_length > b_length:
            a_start += draw() < 0.5
            a_length -= 1
        else:
            b_start += draw() < 0.5
            b_length -= 1
    return Pair(a_start, a_length, b_start, b_length, is_random_next, excess)


def sample_unit(
    documents: SentenceLengths,
    unit: tuple[int, int],
    stream: str,
    max_num_tokens: int,
    short_seq_prob: float,
) -> Iterator[Pair]:
    """Cuts documents unit[0] to unit[1] - 1 into pairs, each with its own random stream.

    The stream of a document depends only on `stream` and the document's number, not on the other
    documents or on the process. A random next sentence always comes from another document.
    """
    for document in range(*unit):
        rng = random.Random(f"{stream} {document}")
        yield from sample_pairs(
            documents, document, rng, max_num_tokens, short_seq_prob, max_tries=sys.maxsize
        )


def full_sentences(
    documents: SentenceLengths, unit: tuple[int, int], max_num_tokens: int
) -> Iterator[Run]:
    """Yields maximal runs of whole sentences of documents unit[0] to unit[1] - 1, in order.

    FULL-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2): a run continues into the next document
    after a separator. Nothing is random and no text is lost: a sentence of more than
    `max_num_tokens` is continued in the next run. Each unit begins a new run.
    """
    document = start = length = 0  # of the run that grows
    for number in range(*unit):
        starts = documents.starts(number)
        for begin, end in pairwise(starts):
            separator = 1 if length and begin == starts[0] else 0
            if length and length + separator + end - begin > max_num_tokens:
                yield Run(document, start, length)
                separator = length = 0
            if not length:
                document, start = number, begin
            length += separator + end - begin
            while length > max_num_tokens:
                yield Run(document, start, max_num_tokens)
                start, length = start + max_num_tokens, length - max_num_tokens
    if length:
        yield Run(document, start, length)
