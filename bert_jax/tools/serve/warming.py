"""Compiles all shapes that requests can need before a server is announced."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.tools.serve.batching import Computation

# Lengths that batches are padded to differ by more than these tokens.
_STEP = 4


class Shaped(Computation, Protocol):
    """A computation that is compiled for a few shapes."""

    def shapes(self, example: Any) -> Iterator[tuple[int, int]]:
        """Yields (length in tokens, most rows) of the batches that an example is in."""
        ...


def warm_up(
    computation: Shaped, make: Callable[[str], Any], tokenizer: Tokenizer, longest: int, shards: int
) -> int:
    """Runs the computation once in each shape.

    Args:
      computation: to warm up.
      make: text -> example.
      tokenizer: of the model.
      longest: text in tokens.
      shards: the number of rows of a batch is a multiple of it.

    Returns:
      The number of shapes.
    """
    word = one_token(tokenizer)
    found: dict[int, tuple[Any, int]] = {}
    for tokens in range(1, longest + 1, _STEP):
        example = make(" ".join([word] * tokens))
        try:
            computation.check(example)
        except UserError:
            break  # this and longer ones are refused
        for length, rows in computation.shapes(example):
            found.setdefault(length, (example, rows))
    count = 0
    for example, rows in found.values():
        size = shards
        while size < rows:
            computation.run([example] * size)
            size, count = 4 * size, count + 1
        computation.run([example] * rows)
        count += 1
    return count


def one_token(tokenizer: Tokenizer) -> str:
    """Returns a word that is one token wherever it stands, if there is one."""
    frequent = (piece.lstrip("▁") for piece in tokenizer.pieces)
    for word in ("the", "a", *frequent):
        if word.isalpha() and len(tokenizer.encode(f"{word} {word} {word}")) == 3:
            return word
    return "a"
