"""Words that are added to a WordPiece vocabulary (`data.extra_tokens`).

    terms.txt       a file with one word per line
    frequent:500    the 500 most frequent words of the text that have MIN_PIECES pieces or more

Their lines follow the last one of vocab.txt, so the old ids keep their meaning. A new word is
a piece like any other: a longer word that begins with it has it as its first piece, as in
transformers.
"""

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping

from bert_jax.config.data import num_frequent
from bert_jax.config.group import named
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer, basic_tokens
from bert_jax.text.wordpiece import MAX_WORD_LENGTH, WordPieceTokenizer

# A frequent word is added if it has at least this many pieces, or is [UNK], and occurs this often.
MIN_PIECES, MIN_COUNT = 3, 5
_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class ExtraTokens:
    """Words to add.

    Attributes:
      words: the new pieces, in the order of their ids.
      known: words of the file that the vocabulary has, or that an earlier line has.
      about: what they are, for the log.
    """

    words: tuple[str, ...]
    known: tuple[str, ...] = ()
    about: str = ""

    def describe(self) -> str:
        """Returns a line with the number of words and the first of them."""
        shown = ", ".join(self.words[:_SHOWN]) + ", ..." * (len(self.words) > _SHOWN)
        line = f"new tokens: {len(self.words):,}{self.about}: {shown}"
        if self.known:
            names = ", ".join(self.known[:_SHOWN]) + ", ..." * (len(self.known) > _SHOWN)
            line += f"; {len(self.known):,} left out, which the vocabulary has: {names}"
        return line


def count_extra_tokens(value: str, tokenizer: Tokenizer) -> int:
    """Returns how many words `data.extra_tokens` adds to the vocabulary of a tokenizer."""
    _check_kind(tokenizer)
    with named("data."):
        number = num_frequent(value)
    return number or len(read_words(value, tokenizer).words)


def read_words(path: str, tokenizer: Tokenizer) -> ExtraTokens:
    """Reads a file with one word per line; empty lines are left out.

    A word has the form that the tokenizer gives it, such as lower case.

    Raises:
      UserError: the file cannot be read, a line is not a single word, or none is new.
    """
    _check_kind(tokenizer)
    try:
        text = pathlib.Path(local(path)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"data.extra_tokens={path} cannot be read: {reason}.") from None
    known, words, left_out = set(tokenizer.pieces), dict[str, None](), []
    for number, line in enumerate(text.splitlines(), 1):
        parts = basic_tokens(line, tokenizer.lowercase)
        if len(parts) > 1 or any(len(part) > MAX_WORD_LENGTH for part in parts):
            what = f"{len(parts)} words" if len(parts) > 1 else f"above {MAX_WORD_LENGTH} letters"
            raise UserError(
                f"{path}:{number}: {line.strip()[:80]!r} is {what} for the tokenizer: give one"
                " word per line, without spaces and punctuation."
            )
        for word in parts:
            if word in known or word in words:
                left_out.append(word)
            words |= {} if word in known else {word: None}
    if not words:
        raise UserError(f"data.extra_tokens={path} has no word that the vocabulary lacks.")
    return ExtraTokens(tuple(words), tuple(left_out), f" of {os.path.basename(path)}")


def frequent_words(counts: Mapping[str, int], tokenizer: Tokenizer, number: int) -> ExtraTokens:
    """Returns the most frequent words of a text that a tokenizer splits into many pieces.

    They have letters only, at least MIN_PIECES pieces or no piece at all ([UNK]), and occur
    MIN_COUNT times or more. Ties are broken alphabetically.

    Args:
      counts: how often each word occurs (`vocabulary.count_words` of `wordpiece`).
      tokenizer: the tokenizer of the vocabulary that they are added to.
      number: number of words.

    Raises:
      UserError: the vocabulary is of another kind, or the text has fewer such words.
    """
    _check_kind(tokenizer)
    words = (w for w, n in counts.items() if n >= MIN_COUNT and len(w) <= MAX_WORD_LENGTH)
    encoded = ((word, tokenizer.encode(word)) for word in words if word.isalpha())
    unknown = [tokenizer.unk_id]
    found = [word for word, ids in encoded if len(ids) >= MIN_PIECES or ids == unknown]
    rule = f"that occur {MIN_COUNT} times or more and have {MIN_PIECES} pieces or more, or none"
    if len(found) < number:
        fix = f"set data.extra_tokens=frequent:{len(found)}" if found else "leave it out"
        raise UserError(
            f"data.extra_tokens=frequent:{number}: the text has only {len(found):,} words {rule}:"
            f" {fix}."
        )
    found.sort(key=lambda word: (-counts[word], word))
    return ExtraTokens(tuple(found[:number]), about=f" of {len(found):,} words {rule}")


def extend(vocabulary: bytes, words: Collection[str]) -> bytes:
    """Returns the bytes of a vocab.txt with words as new lines at its end."""
    end = b"" if vocabulary.endswith(b"\n") else b"\n"
    return vocabulary + end + "".join(f"{word}\n" for word in words).encode()


def _check_kind(tokenizer: Tokenizer) -> None:
    if tokenizer.KIND != WordPieceTokenizer.KIND:
        raise UserError(
            f"data.extra_tokens needs a WordPiece vocabulary (vocab.txt), not one of the kind"
            f" {tokenizer.KIND!r}: leave it out."
        )
