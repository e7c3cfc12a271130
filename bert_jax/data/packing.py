"""Which examples share a row: best-fit decreasing (Johnson 1974), on a histogram of lengths."""

import numpy as np

from bert_jax.files.errors import UserError


def pack(lengths: np.ndarray, row_length: int, max_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Puts examples into rows, longest first, each into the fullest row that has room for it.

    Among equally full rows left by examples of the same length it takes the latest one. The result
    depends on the arguments only. Rows are numbered by their first examples, and the examples of a
    row keep the given order, so that rows stay near their place in the corpus.

    Args:
      lengths: int[examples], in tokens.
      row_length: tokens of a row.
      max_examples: examples of a row, at least 1.

    Returns:
      int64[examples], the numbers of the examples, row by row; int64[rows], examples of each row.

    Raises:
      UserError: an example is longer than a row.
    """
    if lengths.size and (longest := int(lengths.max())) > row_length:
        raise UserError(f"An example of {longest} tokens does not fit in {row_length}.")
    row_of = np.empty(lengths.size, np.int64)
    open_rows: list[list[int]] = [[] for _ in range(row_length + 1)]  # by remaining room
    rooms = 0  # bit r: there is an open row with room r
    sizes: list[int] = []  # examples of each row
    by_length = np.argsort(-lengths.astype(np.int64), kind="stable")
    for example, length in zip(by_length.tolist(), lengths[by_length].tolist(), strict=True):
        if enough := rooms >> length:
            room = length + (enough & -enough).bit_length() - 1  # the lowest bit
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            row, room = len(sizes), row_length
            sizes.append(0)
        row_of[example] = row
        sizes[row] += 1
        if sizes[row] < max_examples:
            open_rows[room - length].append(row)
            rooms |= 1 << (room - length)
    # Number the rows by their first examples.
    _, first, row_of = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    row_of = rank[row_of]
    return np.argsort(row_of, kind="stable"), np.bincount(row_of, minlength=first.size)


def pack_rows(lengths: np.ndarray, row_length: int, max_examples: int) -> np.ndarray:
    """Returns int64[rows, max_examples], the numbers of the examples of each row, then -1.

    The rows of a batch are then laid out by `batch.token_fields`, for encoded examples by
    `labelled.sequences.EncodedRows.take`: `example_ids` count the examples of a row from 1, and
    `position_ids` restart at 0 in each, so that no example attends to another.

    >>> pack_rows(np.array([5, 3, 2, 4]), row_length=8, max_examples=3)
    array([[ 0,  1, -1],
           [ 2,  3, -1]])

    Args:
      lengths: int[examples], in tokens, special tokens included.
      row_length: tokens of a row.
      max_examples: examples of a row, at least 1.

    Raises:
      UserError: an example is longer than a row.
    """
    order, sizes = pack(lengths, row_length, max_examples)
    rows = np.full((len(sizes), max_examples), -1, np.int64)
    rows[np.arange(max_examples) < sizes[:, None]] = order
    return rows
