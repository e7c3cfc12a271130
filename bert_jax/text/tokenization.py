"""Converts text to ids and back: what a tokenizer is, and BERT's WordPiece tokenizer.

    >>> tokenizer = load_tokenizer("vocab.txt", lowercase=True)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Unaffable, naïve [MASK]")]
    ['una', '##ffa', '##ble', ',', 'naive', '[', 'mask', ']']

The ids are those of google-research/bert's `tokenization.FullTokenizer` (commit eedf571) on the
same Python, for every text. Only the implementation differs: that program loops over characters;
here its rules on characters are tables for `str.translate`, and each distinct run of text between
spaces is encoded once.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Protocol

import numpy as np

from bert_jax.files.errors import UserError

# In the order of the ids 0..4 of the vocabularies that we train.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_SPECIAL_PIECE = re.compile(r"\[[A-Za-z]+\d*\]|<[a-z0-9_/]+>")

# Longer words are [UNK] (WordpieceTokenizer's default in the released code).
MAX_WORD_LENGTH = 200

# Separators of words in the released code: space, \t, \n, \r, category Zs, and the two (Zl, Zp)
# that are not cleaned but that str.split() splits at. The further spaces of str.split(), such as
# \x0b and \x85, are control characters there: deleted, so that the text on both sides joins.
SPACES = re.compile("[ \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")

# The blocks of ideographs that the released code splits into single characters, without Kana and
# Hangul.
CJK_RANGES = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class Tokenizer(Protocol):
    """What the data pipeline and the tasks need from a tokenizer. It can be pickled."""

    lowercase: bool  # whether text is lower cased first
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int  # between two texts
    end_id: int  # at the end of a sequence; BERT ends it with sep_id
    mask_id: int  # -1 if the tokenizer has no mask
    random_words: np.ndarray  # int32[words]: ids of the distinct pieces, in the vocabulary's order
    # sha256 of kind, case and vocabulary: equal means that all ids are equal, with equal versions
    # of Python and of the packages that the tokenizer uses
    fingerprint: str

    @property
    def pieces(self) -> tuple[str, ...]:
        """The piece of each id."""
        ...

    @property
    def is_continuation(self) -> np.ndarray:
        """bool[vocab]: the piece continues the word before it."""
        ...

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Returns the ids of `text`; "[MASK]" in it is text, unless `special_tokens`."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Returns readable text."""
        ...

    def continues(self, ids: np.ndarray) -> np.ndarray:
        """Returns bool[tokens]: whether each of int[tokens] continues the word before it."""
        ...


def make_fingerprint(kind: str, lowercase: bool, vocabulary: bytes) -> str:
    return hashlib.sha256(f"{kind} lowercase={lowercase}\n".encode() + vocabulary).hexdigest()


def count_characters(pieces: Iterable[str]) -> tuple[int, ...]:
    """Returns the number of characters that each piece stands for.

    The marks of pieces that continue a word or begin one are not counted. A special piece, such as
    [UNK] or <unk>, has none.
    """
    bare = (piece.removeprefix("##").replace("\N{LOWER ONE EIGHTH BLOCK}", "") for piece in pieces)
    return tuple(0 if _SPECIAL_PIECE.fullmatch(piece) else len(piece) for piece in bare)


class CharacterTable(dict[int, int | str | None]):
    """A table for `str.translate` that computes the entry of a character on first use."""

    def __init__(self, rule: Callable[[str], int | str | None]):
        self._rule = rule

    def __missing__(self, code: int) -> int | str | None:
        self[code] = self._rule(chr(code))
        return self[code]


def is_cjk(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CJK_RANGES)


def is_punctuation(character: str) -> bool:
    """Category P, and all of ASCII that is neither letter, digit nor space ($ + < = > ^ ` | ~)."""
    return unicodedata.category(character).startswith("P") or character in "$+<=>^`|~"


def _clean(character: str) -> str | None:
    """Removes control characters, unifies spaces, and puts spaces around ideographs."""
    if SPACES.match(character):
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf"):
        return None
    return f" {character} " if is_cjk(character) else character


def _split(character: str) -> str:
    """Puts spaces around punctuation."""
    return f" {character} " if is_punctuation(character) else character


def _strip_and_split(character: str) -> str | None:
    """Removes combining marks, and puts spaces around punctuation."""
    return None if unicodedata.category(character) == "Mn" else _split(character)


CLEAN = CharacterTable(_clean)
SPLIT = CharacterTable(_split)
STRIP_AND_SPLIT = CharacterTable(_strip_and_split)


def split_runs(text: str) -> list[str]:
    """Splits text at its spaces; a run of the text may still hold several words: `"House,"`."""
    # Fast where it is the same: all spaces of str.split() but " " itself are unprintable.
    return text.split() if text.isprintable() else SPACES.split(text)


def basic_tokens(text: str, lowercase: bool) -> list[str]:
    """Splits text into words and single punctuation marks, as `BasicTokenizer` does.

    `lowercase` also strips accents. Words are lowercased before they are split, since a final sigma
    depends on its neighbours in the word: "ΟΔΟΣ." -> ["οδος", "."].
    """
    text = text.translate(CLEAN)
    if lowercase:
        text = unicodedata.normalize("NFD", text.lower()).translate(STRIP_AND_SPLIT)
    else:
        text = text.translate(SPLIT)
    return text.split()


class _Cache(dict[str, tuple[int, ...]]):
    """A function of a string, remembered; emptied when full, and without overlong strings."""

    MAX_ENTRIES = 1 << 17
    MAX_LENGTH = 48

    def __init__(self, function: Callable[[str], tuple[int, ...]]):
        self._function = function

    def __missing__(self, text: str) -> tuple[int, ...]:
        ids = self._function(text)
        if len(text) <= self.MAX_LENGTH:
            if len(self) >= self.MAX_ENTRIES:
                self.clear()
            self[text] = ids
        return ids


class WordPieceTokenizer:
    """Greedy longest-match-first tokenizer of BERT (Devlin et al. 2019, section 3).

    Args:
      vocabulary: the bytes of a vocab.txt, a piece a line. As in the released code white space at
        the ends of a line is no part of the piece, and of equal lines the last one's id counts.
      lowercase: whether to lower case and to strip accents ("uncased").
      path: how errors name the vocabulary.

    Raises:
      UserError: the vocabulary is not UTF-8, or a special token is missing.
    """

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the vocabulary"):
        self._arguments = (vocabulary, lowercase, path)
        self.lowercase = lowercase
        self.pieces = _read_pieces(vocabulary, path)
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}
        if missing := [token for token in SPECIAL_TOKENS if token not in self._ids]:
            raise UserError(
                f"{path} lacks {', '.join(missing)}: a WordPiece vocabulary has a line for each"
                f" of {' '.join(SPECIAL_TOKENS)}."
            )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[token] for token in SPECIAL_TOKENS
        )
        self.end_id = self.sep_id
        self.is_continuation = np.array([piece.startswith("##") for piece in self.pieces])
        self.random_words = np.fromiter(self._ids.values(), np.int32)
        self.fingerprint = make_fingerprint("wordpiece", lowercase, vocabulary)
        self._longest = max(map(len, self.pieces))
        # Runs of text between spaces (`"house,"`), and the words in them (`house`).
        self._run_ids = _Cache(self._encode_run)
        self._word_ids = _Cache(self._encode_word)

    def __reduce__(self):
        return type(self), self._arguments

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Returns the ids of `text`, without [CLS] and [SEP] around them.

        Args:
          text: any string.
          special_tokens: whether "[MASK]" and other special tokens in `text` are encoded as such.
            Otherwise no text gives their ids, except [UNK] for an unknown word.
        """
        if special_tokens:
            parts = SPECIAL_PATTERN.split(text)
            ids = ([self._ids[p]] if p in SPECIAL_TOKENS else self.encode(p) for p in parts)
            return list(chain.from_iterable(ids))
        return list(chain.from_iterable(map(self._run_ids.__getitem__, split_runs(text))))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns readable text: pieces joined to words, punctuation close to its word."""
        words = "".join(
            piece[2:] if piece.startswith("##") else " " + piece
            for piece in (self.pieces[i] for i in ids)
        )
        return tidy(words.lstrip())

    def continues(self, ids: np.ndarray) -> np.ndarray:
        """Returns bool[tokens]: whether each of int[tokens] continues the word before it."""
        return self.is_continuation[ids]

    def _encode_run(self, run: str) -> tuple[int, ...]:
        words = basic_tokens(run, self.lowercase)
        return tuple(chain.from_iterable(map(self._word_ids.__getitem__, words)))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        """Returns the longest pieces from the left; [UNK] for the whole word if none matches."""
        if len(word) > MAX_WORD_LENGTH:
            return (self.unk_id,)
        ids: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if (index := self._ids.get(prefix + word[start:end])) is not None:
                    break
            else:
                return (self.unk_id,)
            ids.append(index)
            start, prefix = end, "##"
        return tuple(ids)


SPECIAL_PATTERN = re.compile(f"({'|'.join(map(re.escape, SPECIAL_TOKENS))})")


def _read_pieces(vocabulary: bytes, path: str) -> tuple[str, ...]:
    try:
        lines = vocabulary.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = vocabulary.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} is not UTF-8 text (line {line}), so it is not a vocabulary."
        ) from None
    return tuple(line.strip() for line in lines)


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
