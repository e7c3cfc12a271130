"""Texts with more tokens than a model takes: cut off, or read in overlapping windows."""

import dataclasses

import numpy as np

from bert_jax.data.labelled.sequences import window_starts
from bert_jax.data.labelled.texts import TextRow
from bert_jax.files.errors import UserError


def truncate(row: TextRow, max_length: int) -> TextRow:
    """Returns a text without its last tokens, so that it has at most `max_length`.

    In a pair, the longer text loses its last token until both fit; B, if they are equally long.
    """
    words = row.word_positions
    room = max_length - (len(row.input_ids) - len(words))
    if len(words) <= room:
        return row
    first, second = np.split(words, [np.searchsorted(words, row.first_length)])
    kept = first[: max(room - len(second), (room + 1) // 2)]
    keeps = np.ones(len(row.input_ids), bool)
    keeps[first[len(kept) :]] = keeps[second[room - len(kept) :]] = False
    is_word = np.zeros(len(row.input_ids), bool)
    is_word[words] = True
    return dataclasses.replace(
        row,
        input_ids=row.input_ids[keeps],
        first_length=row.first_length - (len(first) - len(kept)),
        word_positions=np.flatnonzero(is_word[keeps]).astype(np.int32),
        cut=len(words) - room,
    )


def windows(row: TextRow, max_length: int, stride: int = 0) -> list[tuple[TextRow, slice]]:
    """Returns the windows of a text, which overlap, and the part of each that counts.

    The parts of all windows are the tokens of the text, each once: between two windows they meet in
    the middle of the overlap. Each window has the special tokens at its ends; those of the first
    and of the last window count.

    Args:
      row: a text of any length.
      max_length: tokens of a window, special ones included.
      stride: tokens from the start of a window to that of the next one; 0: half of a window.

    Raises:
      UserError: a pair is too long, or the stride is longer than a window.
    """
    ids, words = row.input_ids, row.word_positions
    if len(ids) <= max_length:
        return [(row, slice(0, len(ids)))]
    if row.is_pair:
        raise UserError(
            f"{row.text.where} is a pair of {len(ids)} tokens, and windows are for single texts:"
            f" shorten it to {max_length} tokens, or truncate it."
        )
    before, after = ids[: words[0]], ids[words[-1] + 1 :]
    size, count = max_length - len(before) - len(after), len(words)
    stride = stride or size // 2
    if not 0 < stride <= size:
        raise UserError(f"stride={stride} must be from 1 to {size}, the words of a window.")
    starts = window_starts(count, size, stride)
    middles = [
        (start + size + following + 1) // 2
        for start, following in zip(starts, starts[1:], strict=False)
    ]
    found = []
    for start, begin, end in zip(starts, [0, *middles], [*middles, count], strict=True):
        part = np.concatenate([before, ids[words[start : start + size]], after])
        places = np.arange(len(before), len(before) + size, dtype=np.int32)
        window = dataclasses.replace(
            row, input_ids=part, first_length=len(part), word_positions=places
        )
        shift = len(before) - start
        first = 0 if start == 0 else begin + shift
        last = len(part) if end == count else end + shift
        found.append((window, slice(first, last)))
    return found
