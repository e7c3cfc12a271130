"""Cuts documents into examples: pairs of segments (A, B), full sentences, or running text.

An example is one or two spans of the token store, so cutting needs only the lengths of
sentences, never their tokens.

Pairs are for next sentence prediction: Devlin et al. 2019, section 3.1 and appendix A.2, as
google-research/bert's `create_pretraining_data.py` (commit eedf571) does it. A segment is a run of
whole sentences of one document.

Running text is as for GPT, which was trained on contiguous sequences of 512 tokens (Radford et al.
2018, section 4.1), without regard to the boundaries of sentences and without special tokens around
a sequence. A separator between documents is added here, since documents may be short: it tells the
model that the text before is over, and its probability is that of the end of a document.
"""

import random
import sys
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bert_jax.data.corpus.documents import Documents

# How often the released program draws again for a document other than the pair's own.
RELEASED_TRIES = 10


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


class Run(NamedTuple):
    """Consecutive tokens, with a separator between documents (documents.Documents.run)."""

    # The number of the document that it begins in, and where in the token store.
    document: int
    start: int
    # Separators included.
    length: int


class RunningText(NamedTuple):
    """A row that is `length` tokens of running text and nothing else."""

    # The number of the document that it begins in, and where in the token store.
    document: int
    start: int
    # Separators included, also the one in front.
    length: int
    # Whether the row begins with the separator in front of the document.
    after_separator: bool


def _dtype(fields: tuple[str, ...], kinds: str) -> np.dtype:
    return np.dtype(list(zip(fields, kinds.split(), strict=True)))


# Their dtypes as records of a file.
PAIR = _dtype(Pair._fields, "<u8 <u2 <u8 <u2 ? <u4")
RUN = _dtype(Run._fields, "<u8 <u8 <u2")
RUNNING = _dtype(RunningText._fields, "<u8 <u8 <u2 ?")


def sample_pairs(
    documents: Documents,
    document: int,
    rng: random.Random,
    max_num_tokens: int,
    short_seq_prob: float,
    max_tries: int,
) -> Iterator[Pair]:
    """Cuts a document into pairs, from its first sentence to its last.

    Random numbers are drawn in the order of the released program, those of a pair when the
    generator advances, so the caller can draw from the same stream in between.

    Args:
      documents: two or more; random next sentences come from any of them.
      document: number of the document to cut.
      rng: the stream of random numbers.
      max_num_tokens: maximum number of tokens of A and B together.
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
    documents: Documents, document: int, rng: random.Random, target: int, max_tries: int
) -> tuple[int, int]:
    """Returns a span of another document, from a random sentence to `target` tokens or its end."""
    other = document
    for _ in range(max_tries):
        other = rng.randint(0, len(documents) - 1)
        if other != document:
            break
    first = rng.randint(0, documents.num_sentences(other) - 1)
    # A sentence has at least one token, so `target` sentences are enough.
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
    documents: Documents,
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
    documents: Documents, unit: tuple[int, int], max_num_tokens: int, crosses: bool = True
) -> Iterator[Run]:
    """Yields maximal runs of whole sentences of documents unit[0] to unit[1] - 1, in order.

    FULL-SENTENCES of RoBERTa (Liu et al. 2019, section 4.2): a run continues into the next document
    after a separator; with `crosses=False` DOC-SENTENCES: it ends with its document. Nothing is
    random and no text is lost: a sentence of more than `max_num_tokens` is continued in the next
    run. Each unit begins a new run.
    """
    document = start = length = 0  # of the current run
    for number in range(*unit):
        starts = documents.starts(number)
        for begin, end in pairwise(starts):
            separator = 1 if length and begin == starts[0] else 0
            is_full = length + separator + end - begin > max_num_tokens
            if length and (is_full or (separator and not crosses)):
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


def running_text(
    documents: Documents, unit: tuple[int, int], sequence_length: int
) -> Iterator[RunningText]:
    """Cuts documents unit[0] to unit[1] - 1, as one stream of tokens, into rows.

    The stream is a separator, the first document, a separator, the second document, ..., and a
    separator at the end; it is cut wherever a row is full. The last token of a row is also the
    first of the next, so a model that predicts each token of a row except the first one predicts
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
