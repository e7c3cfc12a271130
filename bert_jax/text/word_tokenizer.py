"""The tokenizer of models that read whole words and their characters, such as ELMo.

    >>> tokenizer = load_tokenizer("words.txt", lowercase=False)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("The cat sat.")]
    ['The', 'cat', 'sat', '.']

A vocabulary is bilm-tf's: a word a line, the most frequent first, with `<S>`, `</S>` and `<UNK>`.
The id of a word is the number of its line, from 0 on.
"""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.offsets import spans_of_pieces
from bert_jax.text.tokenization import basic_tokens, make_fingerprint, tidy

# Begin and end of a sentence, and the unknown word; the first lines of vocabularies that we train.
WORD_SPECIALS = ("<S>", "</S>", "<UNK>")

# Characters of a word, with its markers.
MAX_CHARACTERS = 50
# Numbers of characters, all one higher than in bilm-tf's vocabulary, as the released weights have
# them; 0 is for positions without a word. Bytes of UTF-8 are 1 to 256.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(257, 262)


class WordTokenizer:
    """Splits text into words; each word of the vocabulary has an id.

    The vocabulary decides how text is split. If basic tokenization (`basic_tokens`) would leave
    each of its words whole, text is split by basic tokenization. Otherwise another program made the
    words ("n't", "U.S."), and text is expected in their form: it is split at white space only. The
    same holds for a vocabulary without words.

    Args:
      vocabulary: the bytes of the file.
      lowercase: whether text is lower cased (and, with basic tokenization, accents are removed).
      path: how errors name the vocabulary.
      grows: whether a word that the vocabulary lacks gets the next free id, in this object only,
        so that its characters are known; otherwise its id is `unk_id`.

    Raises:
      UserError: the vocabulary is not UTF-8, or a special word is missing.
    """

    def __init__(
        self,
        vocabulary: bytes,
        lowercase: bool,
        path: str = "the vocabulary",
        grows: bool = False,
    ):
        self._arguments = (vocabulary, lowercase, path, grows)
        self.lowercase, self._grows = lowercase, grows
        self._words = _read_words(vocabulary, path)
        self._ids = {word: index for index, word in enumerate(self._words)}
        if missing := [word for word in WORD_SPECIALS if word not in self._ids]:
            raise UserError(
                f"{path} lacks {', '.join(missing)}: a vocabulary of words has a line for each of"
                f" {' '.join(WORD_SPECIALS)}."
            )
        self.vocabulary_size = len(self._words)
        self.cls_id, self.sep_id, self.unk_id = (self._ids[word] for word in WORD_SPECIALS)
        # Padding is known by `example_ids`; there is no word for masks.
        self.pad_id, self.mask_id, self.end_id = self.sep_id, -1, self.sep_id
        self.random_words = np.fromiter(self._ids.values(), np.int32)
        self.fingerprint = make_fingerprint("words", lowercase, vocabulary)
        self.is_tokenized = _is_tokenized(self._words)
        self._characters = np.zeros((0, MAX_CHARACTERS), np.int16)
        self._pieces: tuple[str, ...] = ()
        self._no_continuation = np.zeros(0, bool)

    def __reduce__(self):
        return type(self), self._arguments

    @property
    def pieces(self) -> tuple[str, ...]:
        """The words by id, those that were added included."""
        if len(self._pieces) < len(self._words):
            self._pieces = tuple(self._words)
        return self._pieces

    @property
    def is_continuation(self) -> np.ndarray:
        """bool[ids]: False, since every id is a whole word."""
        if len(self._no_continuation) < len(self._words):
            self._no_continuation = np.zeros(2 * len(self._words), bool)
        return self._no_continuation[: len(self._words)]

    def continues(self, ids: np.ndarray) -> np.ndarray:
        """Returns bool[tokens]: False for each of int[tokens]."""
        return np.zeros(len(ids), bool)

    @property
    def characters(self) -> np.ndarray:
        """int16[ids, MAX_CHARACTERS]: the characters of each word, those that were added included.

        Markers around at most 48 bytes of UTF-8, then PADDING. `<S>` and `</S>` have one special
        character each.
        """
        known, needed = len(self._characters), len(self._words)
        if known < needed:
            new = np.stack([self._characters_of(index) for index in range(known, needed)])
            self._characters = np.concatenate([self._characters, new])
        return self._characters

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """Returns the ids of the words of `text`, without `<S>` and `</S>` around them.

        Args:
          text: any string.
          special_tokens: whether `<S>`, `</S>` and `<UNK>` in `text`, between spaces, are encoded
            as such. Otherwise they are the unknown word or, with basic tokenization, split.
        """
        if not special_tokens:
            return [self._id(word) for word in self.split(text)]
        runs = text.split()
        ids = ([self._ids[run]] if run in WORD_SPECIALS else self.encode(run) for run in runs)
        return [index for part in ids for index in part]

    def encode_word(self, word: str) -> list[int]:
        """Returns the id of a word that is given as such, whatever it contains; [] if it is empty.

        The words of labelled files are encoded so: each is one piece.
        """
        if self.is_tokenized:
            word = self._lowered(word)
        else:
            word = "".join(basic_tokens(word, self.lowercase))
        return [self._id(word)] if word else []

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the characters [start, stop) of `text` for each id of `encode(text)`."""
        if self.is_tokenized:
            return [run.span() for run in re.finditer(r"\S+", text)]
        return list(spans_of_pieces(self, text))

    def split(self, text: str) -> list[str]:
        """Returns the words of a text."""
        if self.is_tokenized:
            return self._lowered(text).split()
        return basic_tokens(text, self.lowercase)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns readable text: punctuation close to its word."""
        return tidy(" ".join(self._words[index] for index in ids))

    def _lowered(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _id(self, word: str) -> int:
        if word in WORD_SPECIALS:
            return self.unk_id
        index = self._ids.get(word, -1)
        if index >= 0:
            return index
        if not self._grows:
            return self.unk_id
        self._ids[word] = index = len(self._words)
        self._words.append(word)
        return index

    def _characters_of(self, index: int) -> np.ndarray:
        row = np.full(MAX_CHARACTERS, PADDING, np.int16)
        if index in (self.cls_id, self.sep_id):
            is_begin = index == self.cls_id
            row[:3] = BEGIN_WORD, BEGIN_SENTENCE if is_begin else END_SENTENCE, END_WORD
            return row
        data = self._words[index].encode("utf-8", "ignore")[: MAX_CHARACTERS - 2]
        row[0] = BEGIN_WORD
        row[1 : len(data) + 1] = np.frombuffer(data, np.uint8).astype(np.int16) + 1
        row[len(data) + 1] = END_WORD
        return row


def is_word_vocabulary(vocabulary: bytes) -> bool:
    """Returns whether a vocabulary file has a line for each of WORD_SPECIALS."""
    lines = {line.strip() for line in vocabulary.split(b"\n")}
    return all(word.encode() in lines for word in WORD_SPECIALS)


def make_word_vocabulary(words: Iterable[str]) -> bytes:
    """Returns the bytes of a vocabulary: WORD_SPECIALS, then the words in their order."""
    others = (word for word in words if word not in WORD_SPECIALS)
    return "".join(f"{word}\n" for word in (*WORD_SPECIALS, *others)).encode()


def _read_words(vocabulary: bytes, path: str) -> list[str]:
    try:
        lines = vocabulary.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = vocabulary.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} is not UTF-8 text (line {line}), so it is not a vocabulary."
        ) from None
    return [line.strip() for line in lines]


def _is_tokenized(words: Iterable[str]) -> bool:
    """Returns whether text must be split before, since other rules than ours made the words."""

    def ours() -> Iterator[bool]:
        for word in words:
            if word not in WORD_SPECIALS:
                yield basic_tokens(word, False) == [word]

    checked = False
    for is_ours in ours():
        if not is_ours:
            return True
        checked = True
    return not checked
