"""The tokenizer of models that read whole words and their characters, such as ELMo.

    >>> tokenizer = load_tokenizer("words.txt", lowercase=False)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("The cat sat.")]
    ['The', 'cat', 'sat', '.']

A vocabulary is as in bilm-tf: one word per line, the most frequent first, with `<S>`, `</S>` and
`<UNK>`. The id of a word is the number of its line, from 0 on.
"""

import re
from collections.abc import Iterable

import numpy as np

from bert_jax.text.tokenization import Tokenizer, basic_tokens, read_pieces, tidy

# Begin and end of a sentence, and the unknown word; the first lines of vocabularies that we train.
WORD_SPECIALS = ("<S>", "</S>", "<UNK>")

# Characters of a word, with its markers.
MAX_CHARACTERS = 50
# Numbers of characters, all one higher than in bilm-tf's vocabulary, as the released weights have
# them; 0 is for positions without a word. Bytes of UTF-8 are 1 to 256.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(257, 262)


class WordTokenizer(Tokenizer):
    """Splits text into words; each word of the vocabulary has an id.

    The vocabulary decides how text is split. If basic tokenization (`basic_tokens`) would leave
    each of its words whole, text is split by basic tokenization. Otherwise another program made the
    words ("n't", "U.S."), and text is expected in their form: it is split at white space only. The
    same holds for a vocabulary without words.

    Args:
      vocabulary: the bytes of the file.
      lowercase: whether text is lower cased (and, with basic tokenization, accents are removed).
      path: name of the vocabulary in errors.
      grows: whether a word that the vocabulary lacks gets the next free id, in this object only,
        so that its characters are known; otherwise its id is `unk_id`.

    Raises:
      UserError: the vocabulary is not UTF-8, or a special word is missing.
    """

    KIND = "words"

    def __init__(
        self,
        vocabulary: bytes,
        lowercase: bool,
        path: str = "the vocabulary",
        grows: bool = False,
    ):
        super().__init__(vocabulary, lowercase, path)
        self._arguments, self._grows = (vocabulary, lowercase, path, grows), grows
        kind = "vocabulary of words"
        self.pieces: list[str]
        self.pieces, self._ids, self._special = read_pieces(vocabulary, WORD_SPECIALS, path, kind)
        self.vocabulary_size = len(self.pieces)
        self.cls_id, self.sep_id, self.unk_id = self._special.values()
        # Padding is known by `example_ids`; there is no word for masks.
        self.pad_id, self.mask_id, self.end_id = self.sep_id, -1, self.sep_id
        self.is_continuation = np.zeros(len(self.pieces), bool)  # every id is a whole word
        self.random_words = np.fromiter(self._ids.values(), np.int32)
        # Text must already be split if rules other than ours made the words.
        own = [word for word in self.pieces if word not in WORD_SPECIALS]
        self.is_tokenized = not own or any(basic_tokens(word, False) != [word] for word in own)
        self._characters = np.zeros((0, MAX_CHARACTERS), np.int16)

    @property
    def characters(self) -> np.ndarray:
        """int16[ids, MAX_CHARACTERS]: the characters of each word, also of added ones.

        Markers around at most 48 bytes of UTF-8, then PADDING. `<S>` and `</S>` have one special
        character each.
        """
        known, needed = len(self._characters), len(self.pieces)
        if known < needed:
            new = np.stack([self._characters_of(index) for index in range(known, needed)])
            self._characters = np.concatenate([self._characters, new])
        return self._characters

    def encode_word(self, word: str) -> list[int]:
        """Returns the id of a word, which is not split; [] if it is empty."""
        if self.is_tokenized:
            word = self._lowered(word)
        else:
            word = "".join(basic_tokens(word, self.lowercase))
        return [self._id(word)] if word else []

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        if self.is_tokenized:
            return [run.span() for run in re.finditer(r"\S+", text)]
        return super().character_spans(text)

    def count_unknown(self, ids: Iterable[int]) -> int:
        """Counts added words too: their characters are read, but the softmax lacks them."""
        return sum(index == self.unk_id or index >= self.vocabulary_size for index in ids)

    def decode(self, ids: Iterable[int]) -> str:
        return tidy(" ".join(self.pieces[index] for index in ids))

    def _encode(self, text: str) -> list[int]:
        if self.is_tokenized:
            return list(map(self._id, self._lowered(text).split()))
        return list(map(self._id, basic_tokens(text, self.lowercase)))

    def _split_special(self, text: str) -> list[str]:
        return text.split()  # special words stand between spaces

    def _lowered(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _id(self, word: str) -> int:
        index = self.unk_id if word in WORD_SPECIALS else self._ids.get(word)
        if index is None and self._grows:
            self._ids[word] = index = len(self.pieces)
            self.pieces.append(word)
            self.is_continuation = np.zeros(len(self.pieces), bool)
        return self.unk_id if index is None else index

    def _characters_of(self, index: int) -> np.ndarray:
        row = np.full(MAX_CHARACTERS, PADDING, np.int16)
        if index in (self.cls_id, self.sep_id):
            is_begin = index == self.cls_id
            row[:3] = BEGIN_WORD, BEGIN_SENTENCE if is_begin else END_SENTENCE, END_WORD
            return row
        data = self.pieces[index].encode("utf-8", "ignore")[: MAX_CHARACTERS - 2]
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
