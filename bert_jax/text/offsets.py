"""The characters of a text that each of its ids represents.

>>> tokenizer = load_tokenizer("vocab.txt", lowercase=True)
>>> character_spans(tokenizer, "Unaffable, naïve")
[(0, 3), (3, 6), (6, 9), (9, 10), (11, 16)]
"""

import functools
import re
from collections.abc import Iterator

from bert_jax.text.tokenization import SPACES, Tokenizer, basic_tokens

_RUN = re.compile("[^" + SPACES.pattern.removeprefix("["))


def character_spans(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Returns the characters [start, stop) of `text` for each id of `tokenizer.encode(text)`.

    The id of an unknown word represents the whole word. Characters that the tokenizer drops
    (spaces, control characters, separate accents) belong to no id, or are within the span of one.
    """
    if spans := getattr(tokenizer, "character_spans", None):
        return spans(text)
    return list(spans_of_pieces(tokenizer, text))


def spans_of_pieces(tokenizer: Tokenizer, text: str) -> Iterator[tuple[int, int]]:
    """Yields the same for a tokenizer that splits text by `basic_tokens` first."""
    lowercase = getattr(tokenizer, "lowercase", False)
    for run in _RUN.finditer(text):
        ids = iter(tokenizer.encode(run.group()))
        # The place in the text that each character of the words comes from.
        sources = [
            place
            for place, character in enumerate(run.group(), run.start())
            for _ in range(_num_kept(character, lowercase))
        ]
        start = 0
        for word in basic_tokens(run.group(), lowercase):
            stop = start + len(word)
            while start < stop:
                piece = next(ids)
                size = len(tokenizer.pieces[piece]) - 2 * int(tokenizer.is_continuation[piece])
                end = stop if piece == tokenizer.unk_id else start + size
                yield sources[start], sources[end - 1] + 1
                start = end


@functools.lru_cache(maxsize=1 << 16)
def _num_kept(character: str, lowercase: bool) -> int:
    """Returns the number of characters that a character becomes, independent of its context."""
    return sum(map(len, basic_tokens(character, lowercase)))
