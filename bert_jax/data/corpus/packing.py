"""Which examples share a row: best-fit decreasing (Johnson 1974), on a histogram of lengths."""

import numpy as np

from bert_jax.files.errors import UserError


def pack(lengths: np.ndarray, capacity: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Puts examples into rows, longest first, each into the fullest row that has room for it.

    Of equally full rows that were left by an example of the same length it takes the latest one. A
    function of its arguments only. Rows are numbered by their first examples, and the examples of a
    row are in the order in which they are given, so that rows stay near their place in the corpus.

    Args:
      lengths: int[examples], in tokens.
      capacity: tokens of a row.
      most: examples of a row, at least 1.

    Returns:
      int64[examples], the numbers of the examples, row by row; int64[rows], examples of each row.

    Raises:
      UserError: an example is longer than a row.
    """
    if lengths.size and (longest := int(lengths.max())) > capacity:
        raise UserError(f"An example of {longest} tokens does not fit in {capacity}.")
    row_of = np.empty(lengths.size, np.int64)
    open_rows: list[list[int]] = [[] for _ in range(capacity + 1)]  # by the room that is left
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
            row, room = len(sizes), capacity
            sizes.append(0)
        row_of[example] = row
        sizes[row] += 1
        if sizes[row] < most:
            open_rows[room - length].append(row)
            rooms |= 1 << (room - length)
    return _in_order(row_of)


def _in_order(row_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[examples] rows -> the examples row by row, and the number in each row; see `pack`."""
    _, first, row_of = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    row_of = rank[row_of]
    return np.argsort(row_of, kind="stable"), np.bincount(row_of, minlength=first.size)
