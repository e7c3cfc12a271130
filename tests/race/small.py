"""A small text of random tokens, and what race/prepare.py reads of its tokenizer."""

import numpy as np

from race import train

WORDS = 1000


class Tokenizer:
    """Ids of the special tokens, and a piece for each number."""

    pad_id, cls_id, sep_id, mask_id = train.PAD, train.CLS, train.SEP, train.MASK
    pieces = tuple(map(str, range(WORDS)))

    def piece_lengths(self) -> tuple[int, ...]:
        return tuple(map(len, self.pieces))


def make_text() -> list[list[np.ndarray]]:
    """Returns 60 documents of sentences, uint16 ids."""
    rng = np.random.default_rng(5)
    lengths = (rng.geometric(0.06, rng.integers(1, 20)) for _ in range(60))
    return [[rng.integers(5, WORDS, n).astype(np.uint16) for n in some] for some in lengths]
