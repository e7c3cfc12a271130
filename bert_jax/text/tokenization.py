"""What all tokenizers share, and the rules on characters of google-research/bert."""

import dataclasses
import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.files import with_newlines

K = TypeVar("K")
T = TypeVar("T")

# In the order of the ids 0..4 of the vocabularies that we train.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_SPECIAL_PIECE = re.compile(r"\[[A-Za-z]+\d*\]|<[a-z0-9_/]+>")

# Separators of words in the released code: space, \t, \n, \r, category Zs, and the two (Zl, Zp)
# that are not cleaned but that str.split() splits at. The other spaces of str.split(), such as
# \x0b and \x85, are control characters there: deleted, so that the text on both sides joins.
_SPACE = " \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SPACES, _NO_SPACES = re.compile(f"[{_SPACE}]+"), re.compile(f"[^{_SPACE}]+")

# The blocks of ideographs that the released code splits into single characters, without Kana and
# Hangul.
CJK_RANGES = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


@dataclasses.dataclass(frozen=True)
class WordRules:
    """How text becomes words, before pieces are looked up.

    Attributes:
      lowercase: whether text is lower cased.
      strip_accents: whether accents are removed; None: as `lowercase`.
      split_ideographs: whether each ideograph is a word.
    """

    lowercase: bool
    strip_accents: bool | None = None
    split_ideographs: bool = True

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def split(self, text: str) -> list[str]:
        """Splits text into words and single punctuation marks, as `BasicTokenizer` does.

        Words are lowercased before they are split, since a final sigma depends on its neighbors in
        the word: "ΟΔΟΣ." -> ["οδος", "."].
        """
        text = text.translate(CLEAN if self.split_ideographs else CLEAN_ONLY)
        if self.lowercase:
            text = text.lower()
        if self.strips_accents:
            return unicodedata.normalize("NFD", text).translate(STRIP_AND_SPLIT).split()
        return text.translate(SPLIT).split()


class Tokenizer:
    """What the data pipeline and the tasks need from a tokenizer. It can be pickled.

    Args:
      vocabulary: the bytes of its file.
      lowercase: whether text is lower cased first.
      path: name of the vocabulary in errors.

    Attributes:
      pieces: the piece of each id.
      is_continuation: bool[vocab], whether a piece continues the word before it.
      pad_id, unk_id, cls_id: ids of special tokens.
      sep_id: id that stands between two texts.
      num_separators: how often `sep_id` stands between two texts: 2 for RoBERTa's vocabularies.
      end_id: id that ends a sequence; BERT ends it with sep_id.
      mask_id: -1 if the tokenizer has no mask.
      random_words: int32[words], ids of the distinct pieces, in the vocabulary's order.
      fingerprint: sha256 of kind, case and vocabulary. Equal ones mean equal ids, given equal
        versions of Python and of the packages that the tokenizer uses.
    """

    KIND: str
    pieces: tuple[str, ...] | list[str]
    is_continuation: np.ndarray
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    num_separators: int = 1
    end_id: int
    mask_id: int
    random_words: np.ndarray
    _special: dict[str, int]  # special tokens that a text may name, and their ids
    _rules: WordRules

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the vocabulary"):
        self._arguments: tuple[Any, ...] = (vocabulary, lowercase, path)
        self.lowercase = lowercase
        self._rules = WordRules(lowercase)
        self.fingerprint = self._fingerprint(vocabulary)

    def __reduce__(self):
        return type(self), self._arguments

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Returns the ids of `text`, without special tokens around them.

        Args:
          text: any string.
          special_tokens: whether "[MASK]" and other special tokens in `text` are encoded as such.
            Otherwise no text gives their ids, except that of the unknown token.
        """
        if not special_tokens:
            return self._encode(text)
        parts = self._split_special(text)
        ids = ([self._special[p]] if p in self._special else self._encode(p) for p in parts)
        return list(chain.from_iterable(ids))

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word in a labelled file, whatever it contains."""
        return self.encode(word)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns readable text: pieces joined to words, punctuation close to its word."""
        raise NotImplementedError

    def continues(self, ids: np.ndarray) -> np.ndarray:
        """Returns bool[tokens]: whether each of int[tokens] continues the word before it."""
        return self.is_continuation[ids]

    def count_unknown(self, ids: Iterable[int]) -> int:
        """Returns how many ids have no probability of their own, but that of the unknown token."""
        return sum(index == self.unk_id for index in ids)

    def piece_lengths(self) -> tuple[int, ...]:
        """Returns the number of characters that each piece stands for; see `count_characters`."""
        return count_characters(self.pieces)

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the characters [start, stop) of `text` for each id of `encode(text)`.

        The id of an unknown word represents the whole word. Characters that the tokenizer drops
        (spaces, control characters, separate accents) belong to no id, or are within the span of
        one.
        """
        spans = []
        for run in _NO_SPACES.finditer(text):
            ids = iter(self.encode(run.group()))
            # The place in the text that each character of the words comes from.
            sources = [
                place
                for place, character in enumerate(run.group(), run.start())
                for _ in range(_num_kept(character, self._rules))
            ]
            start = 0
            for word in self._rules.split(run.group()):
                stop = start + len(word)
                while start < stop:
                    piece = next(ids)
                    size = len(self.pieces[piece]) - 2 * int(self.is_continuation[piece])
                    end = stop if piece == self.unk_id else start + size
                    spans.append((sources[start], sources[end - 1] + 1))
                    start = end
        return spans

    def _fingerprint(self, vocabulary: bytes) -> str:
        kind = f"{self.KIND} lowercase={self.lowercase}\n".encode()
        return hashlib.sha256(kind + vocabulary).hexdigest()

    def _encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def _split_special(self, text: str) -> list[str]:
        return re.split(f"({'|'.join(map(re.escape, self._special))})", text)


def read_pieces(
    vocabulary: bytes, special: Sequence[str], path: str, kind: str
) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Returns the lines of a vocabulary, without white space around them, and ids of pieces.

    Args:
      vocabulary: the bytes of the file.
      special: the special tokens that it must have.
      path, kind: how errors name the vocabulary, and what it should be.

    Returns:
      The pieces, the id of each (of equal ones, the last id), and those of `special`.

    Raises:
      UserError: it is not UTF-8, or lacks special tokens.
    """
    try:
        text = b"".join(with_newlines([vocabulary])).decode()
        lines = text.removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = vocabulary.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} is not UTF-8 text (line {line}), so it is not a vocabulary."
        ) from None
    pieces = [line.strip() for line in lines]
    ids = {piece: index for index, piece in enumerate(pieces)}
    if missing := [token for token in special if token not in ids]:
        raise UserError(
            f"{path} lacks {', '.join(missing)}: a {kind} has one line for each of"
            f" {' '.join(special)}."
        )
    return pieces, ids, {token: ids[token] for token in special}


def count_characters(pieces: Iterable[str]) -> tuple[int, ...]:
    """Returns the number of characters that each piece stands for.

    The marks of pieces that continue a word or begin one are not counted. A special piece, such as
    [UNK] or <unk>, has none.
    """
    bare = (piece.removeprefix("##").replace("\N{LOWER ONE EIGHTH BLOCK}", "") for piece in pieces)
    return tuple(0 if _SPECIAL_PIECE.fullmatch(piece) else len(piece) for piece in bare)


class Memo(dict[K, T]):
    """A function, such as a table for `str.translate`, whose values are computed on first use."""

    def __init__(self, function: Callable[[K], T]):
        self._function = function

    def __missing__(self, key: K) -> T:
        self[key] = self._function(key)
        return self[key]


def is_cjk(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)


def is_punctuation(character: str) -> bool:
    """Category P, and all of ASCII that is not a letter, digit or space ($ + < = > ^ ` | ~)."""
    return unicodedata.category(character).startswith("P") or character in "$+<=>^`|~"


def _clean_only(code: int) -> str | None:
    """Removes control characters, and unifies spaces."""
    character = chr(code)
    if SPACES.match(character):
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return None
    return character


def _clean(code: int) -> str | None:
    """Does the same, and puts spaces around ideographs."""
    return f" {chr(code)} " if is_cjk(chr(code)) else _clean_only(code)


def _split(code: int) -> str:
    """Puts spaces around punctuation."""
    return f" {chr(code)} " if is_punctuation(chr(code)) else chr(code)


def _strip_and_split(code: int) -> str | None:
    """Removes combining marks, and puts spaces around punctuation."""
    return None if unicodedata.category(chr(code)) == "Mn" else _split(code)


CLEAN, CLEAN_ONLY = Memo(_clean), Memo(_clean_only)
SPLIT, STRIP_AND_SPLIT = Memo(_split), Memo(_strip_and_split)


def split_runs(text: str) -> list[str]:
    """Splits text at its spaces; a run of the text may still hold several words: `"House,"`."""
    # Fast where it is the same: all spaces of str.split() but " " itself are unprintable.
    return text.split() if text.isprintable() else SPACES.split(text)


def basic_tokens(text: str, lowercase: bool) -> list[str]:
    """Splits text by the rules of the released models; `lowercase` also strips accents."""
    return WordRules(lowercase).split(text)


@functools.lru_cache(maxsize=1 << 16)
def _num_kept(character: str, rules: WordRules) -> int:
    """Returns the number of characters that a character becomes, independent of its context."""
    return sum(map(len, rules.split(character)))


_CJK = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK_RANGES) + "]"
_TIDY = (
    (re.compile(r" (?=[,.;:!?%)\]}’”…、。，；：！？）」』》])"), ""),
    (re.compile(r"(?<=[(\[{$‘“（「『《]) "), ""),
    (re.compile(r"(?<=\w) (['’-]) ?(?=\w)"), r"\1"),
    (re.compile(f"(?<={_CJK}) (?={_CJK})"), ""),
)


def tidy(text: str) -> str:
    """Removes the spaces that tokenization puts around punctuation and ideographs."""
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    return text
