"""GPT's released byte-pair tokenizer (Radford et al. 2018), on ftfy and spaCy.

    >>> tokenizer = load_tokenizer("model/", lowercase=True)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Mr. Darcy's unaffable.")]
    ['mr.</w>', 'dar', 'cy</w>', "'s</w>", 'un', 'aff', 'able</w>', '.</w>']

The ids are those of openai/finetune-transformer-lm's `TextEncoder` (commit a69b5c4) with the same
versions of ftfy and spaCy. Where a split depends on what stands around it, as some of spaCy's do,
no cache of text can be exact; therefore spaCy sees every text whole, and only the pieces of its
words are remembered.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text import gpt_text
from bert_jax.text.gpt_vocabulary import UNKNOWN, unpack
from bert_jax.text.tokenization import Memo, Tokenizer, tidy

# Appended to the pieces of the vocabulary in this order, as the released program does.
START, DELIMITER, CLASSIFY = SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_")
# At the end of a word's last piece.
END = "</w>"
# The space before "n't" and "'s", which spaCy splits off.
_CONTRACTION = re.compile(r"(?<=\w) (?=(n't|'\w{1,2})\b)")


class GptTokenizer(Tokenizer):
    """Byte pairs of lower case words.

    Sequences are `_start_ A _classify_` or `_start_ A _delimiter_ B _classify_`. There is no
    [MASK]: `mask_id` is -1, and what needs one refuses the tokenizer. Padding is id 0, as in the
    released program: no loss counts it, and no token attends to it.

    Args:
      vocabulary: the bytes of a `vocab.gpt` (gpt_vocabulary.py). The three special tokens are
        appended where it lacks them.
      lowercase: must be True; words are lower cased after they are split.
      path: how errors name the vocabulary.

    Raises:
      UserError: the vocabulary is not one, `lowercase` is False, or ftfy or spaCy is missing.
    """

    KIND = "gpt"
    MAX_WORDS = 1 << 17

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the vocabulary"):
        super().__init__(vocabulary, lowercase, path)
        if not lowercase:
            raise UserError(
                f"{path} is GPT's vocabulary, which has lower case only: set data.lowercase=True."
            )
        pieces, merges = unpack(vocabulary, path)
        self._fix, self._make_splitter = gpt_text.load_libraries()
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        pieces += [token for token in SPECIAL_TOKENS if token not in self._ids]
        self.pieces = tuple(pieces)
        self._special = {piece: pieces.index(piece) for piece in (UNKNOWN, *SPECIAL_TOKENS)}
        self.unk_id, self.cls_id, self.sep_id, self.end_id = self._special.values()
        self.pad_id, self.mask_id = 0, -1
        # Whether a piece continues a word depends on the piece before it: see `continues`.
        self.is_continuation = np.zeros(len(self.pieces), bool)
        self.random_words = np.arange(len(self.pieces), dtype=np.int32)
        self._ends_word = np.array([p.endswith(END) or p in SPECIAL_TOKENS for p in self.pieces])
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._renew()

    def _encode(self, text: str) -> list[int]:
        if len(self._word_ids) >= self.MAX_WORDS:
            self._renew()
        words: Any = self._splitter(gpt_text.clean(self._fix(text)))
        hashes = words.to_array("ORTH").tolist()  # spaCy's hash of each word
        return list(chain.from_iterable(map(self._word_ids.__getitem__, hashes)))

    def decode(self, ids: Iterable[int]) -> str:
        pieces = (self.pieces[i] for i in ids)
        text = "".join(f" {p} " if p in SPECIAL_TOKENS else p.replace(END, " ") for p in pieces)
        return tidy(_CONTRACTION.sub("", re.sub(" +", " ", text).strip(" ")))

    def continues(self, ids: np.ndarray) -> np.ndarray:
        return np.append(False, ~self._ends_word[ids[:-1]])[: len(ids)]

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        cleaned, places = gpt_text.places_of_clean_text(text, self._fix(text))
        return list(self._spans(self._splitter(cleaned), places))

    def _spans(self, words: Iterable[Any], places: list[Any]) -> Iterator[tuple[int, int]]:
        for word in words:
            inside = places[word.idx : word.idx + len(word.text)]
            # Lower case may have more characters.
            sizes = [len(character.lower()) for character in word.text]
            inside = [p for p, n in zip(inside, sizes, strict=True) for _ in range(n)]
            start = 0
            for piece in self._pieces_of(word.text.lower()):
                stop = start + len(piece.removesuffix(END))
                yield inside[start][0], inside[stop - 1][1]
                start = stop

    def _renew(self) -> None:
        """Forgets all words; spaCy remembers each one that it has seen, too."""
        self._splitter = self._make_splitter()
        strings = self._splitter.vocab.strings
        self._word_ids = Memo(lambda key: self._encode_word(strings[key]))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids.get(piece, self.unk_id) for piece in self._pieces_of(word.lower()))

    def _pieces_of(self, word: str) -> list[str]:
        """Merges neighbours, those of the lowest rank first, everywhere in the word at once."""
        if word.isspace():  # spaCy's word for a line break has the space after it
            return [word[0] + END]
        parts = [*word[:-1], word[-1] + END]
        while len(parts) > 1:
            pairs = zip(parts, parts[1:], strict=False)
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                size = 2 if (*parts[i : i + 2],) == best else 1
                merged.append("".join(parts[i : i + size]))
                i += size
            parts = merged
        return parts
