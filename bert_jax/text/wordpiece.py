"""BERT's WordPiece tokenizer.

    >>> tokenizer = load_tokenizer("vocab.txt", lowercase=True)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Unaffable, naïve [MASK]")]
    ['una', '##ffa', '##ble', ',', 'naive', '[', 'mask', ']']

The ids are those of google-research/bert's `tokenization.FullTokenizer` (commit eedf571) on the
same Python, for every text. Only the implementation differs: that program loops over characters;
here its rules on characters are tables for `str.translate`, and each distinct run of text between
spaces is encoded once.
"""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from bert_jax.text.tokenization import (
    SPECIAL_TOKENS,
    Memo,
    Tokenizer,
    WordRules,
    read_pieces,
    split_runs,
    tidy,
)

# WordpieceTokenizer's default in the released code.
MAX_WORD_LENGTH = 200


class _Cache(Memo[str, tuple[int, ...]]):
    """A function of a string, remembered; emptied when full, and without overlong strings."""

    MAX_ENTRIES = 1 << 17
    MAX_LENGTH = 48

    def __missing__(self, text: str) -> tuple[int, ...]:
        ids = self._function(text)
        if len(text) <= self.MAX_LENGTH:
            if len(self) >= self.MAX_ENTRIES:
                self.clear()
            self[text] = ids
        return ids


class WordPieceTokenizer(Tokenizer):
    """Greedy longest-match-first tokenizer of BERT (Devlin et al. 2019, section 3).

    A vocabulary is a vocab.txt, one piece per line. As in the released code, white space at the
    ends of a line is not part of the piece, and of equal lines the last one's id counts.
    `lowercase` also strips accents ("uncased").

    Raises:
      UserError: the vocabulary is not UTF-8, or a special token is missing.
    """

    KIND = "wordpiece"
    max_word_length = MAX_WORD_LENGTH  # longer words are [UNK]

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the vocabulary"):
        super().__init__(vocabulary, lowercase, path)
        kind = "WordPiece vocabulary"
        pieces, self._ids, self._special = read_pieces(vocabulary, SPECIAL_TOKENS, path, kind)
        self.pieces = tuple(pieces)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self._special.values()
        self.end_id = self.sep_id
        self.is_continuation = np.array([piece.startswith("##") for piece in self.pieces])
        self.random_words = np.fromiter(self._ids.values(), np.int32)
        self._longest = max(map(len, self.pieces))
        # Runs of text between spaces (`"house,"`), and the words in them (`house`).
        self._run_ids = _Cache(self._encode_run)
        self._word_ids = _Cache(self._encode_word)

    def decode(self, ids: Iterable[int]) -> str:
        words = "".join(
            piece[2:] if piece.startswith("##") else " " + piece
            for piece in (self.pieces[i] for i in ids)
        )
        return tidy(words.lstrip())

    def _encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._run_ids.__getitem__, split_runs(text))))

    def _encode_run(self, run: str) -> tuple[int, ...]:
        words = self._rules.split(run)
        return tuple(chain.from_iterable(map(self._word_ids.__getitem__, words)))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        """Returns the longest pieces from the left; [UNK] for the whole word if none matches."""
        if len(word) > self.max_word_length:
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

    @property
    def rules(self) -> WordRules:
        """How text becomes words."""
        return self._rules
