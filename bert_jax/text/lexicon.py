"""Finds the phrases of a lexicon in rows of token ids, as masking units.

A lexicon is a UTF-8 file with one phrase per line, or a phrase, a tab and the name of its class:

    New York<TAB>place
    Harriet Vane<TAB>person
    as well as

    >>> entries = read_lexicon("names.txt")
    >>> matcher = PhraseMatcher(entries, tokenizer, "names.txt")
    >>> matcher.match(np.array(tokenizer.encode("Harriet Vane loved New York")))
    array([3, 0, 1, 4, 0], dtype=int32)

Phrases are compared as token ids, so case and accents matter only as far as they do for the
tokenizer. They begin and end at the boundaries of words; ideographs are words.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.files import with_newlines
from bert_jax.text.tokenization import Tokenizer, is_cjk, is_punctuation

# Codes of `PhraseMatcher.match`: a token continues a unit, begins a word, begins a phrase of the
# class with this code or a larger one.
CONTINUES, WORD, PHRASE = 0, 1, 2

# Buckets for the first two ids of phrases, a power of two; and the factor of the first id.
_BUCKETS = 1 << 22
_FACTOR = 0x9E3779B1


@dataclasses.dataclass(frozen=True)
class Entry:
    """A phrase of a lexicon, its class ("": none) and its line, from 1 on."""

    phrase: str
    class_name: str
    line: int


def read_lexicon(path: str | os.PathLike) -> list[Entry]:
    """Reads the phrases of a file. White space around them and empty lines are dropped.

    Raises:
      UserError: the file cannot be read, is not UTF-8, has no phrase, or has a malformed line.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = b"".join(with_newlines([file.read()]))
    except OSError as error:
        raise UserError(f"The lexicon {path} cannot be read: {error.strerror}.") from None
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} is not UTF-8 text (line {line}): convert it to UTF-8.") from None
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        phrase, *classes = (column.strip() for column in line.split("\t"))
        if not phrase or len(classes) > 1:
            raise UserError(
                f"{path}, line {number}: {line.strip()!r} is neither a phrase nor a phrase, a tab"
                " and a class."
            )
        entries.append(Entry(phrase, "".join(classes), number))
    if not entries:
        raise UserError(f"The lexicon {path} has no phrases: give one per line.")
    return entries


def check_classes(weighted: Iterable[str], entries: Sequence[Entry], path: str) -> None:
    """Raises UserError if a class with a weight is not in the lexicon."""
    known = sorted({entry.class_name for entry in entries} - {""})
    for name in weighted:
        if name not in known:
            raise UserError(
                f"data.lexicon_weights has the class {name!r}, which no phrase in {path} has; its"
                f" classes: {', '.join(known) or 'none'}."
            )


class PhraseMatcher:
    """The phrases of a lexicon as token ids.

    A phrase with a word that the vocabulary does not have is left out: [UNK] does not say which
    word it stands for.

    Args:
      entries: the lexicon's entries.
      tokenizer: the tokenizer that made the rows.
      path: name of the lexicon in errors.
      weights: weights of classes by name; the others have weight 1.

    Attributes:
      classes: "", then the names of the classes in alphabetical order; the code of a phrase is
        `PHRASE` plus the index of its class.
      weights: float64[codes], the weight of a unit by its code.
      stored: int8[codes], what rows store for a code: 0 continues a unit, 1 begins a word, 2 a
        phrase of a class without a weight, 3 + i a phrase of the i-th class in `weights`. So rows
        with many classes have few numbers, and weights can change without new rows.
      is_weighted: whether a weight is not 1.
      cls_id, sep_id: of the tokenizer.
      counts: `phrases` that can be found; `repeated` lines; `with_unknown_words`:
        phrases left out.

    Raises:
      UserError: a phrase has no tokens, or is in two classes.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        tokenizer: Tokenizer,
        path: str = "the lexicon",
        weights: Mapping[str, float] = MappingProxyType({}),
    ):
        self.classes = ("", *sorted({entry.class_name for entry in entries} - {""}))
        of_phrases = [weights.get(name, 1.0) for name in self.classes]
        self.weights = np.array([0.0, 1.0, *of_phrases])
        numbers = {name: PHRASE + 1 + index for index, name in enumerate(weights)}
        of_phrases = [numbers.get(name, PHRASE) for name in self.classes]
        self.stored = np.array([CONTINUES, WORD, *of_phrases], np.int8)
        self.counts = dict.fromkeys(("phrases", "repeated", "with_unknown_words"), 0)
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
        self.is_weighted = bool((self.weights[WORD:] != 1).any())
        self._is_continuation = np.asarray(tokenizer.is_continuation, bool)
        self._is_special = np.zeros(len(tokenizer.pieces), bool)
        self._is_special[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]] = True
        # Bytes of uint32 ids -> code.
        self._codes: dict[bytes, int] = {}
        codes = {name: PHRASE + index for index, name in enumerate(self.classes)}
        lines: dict[bytes, Entry] = {}
        for entry in entries:
            forms = _forms(entry, tokenizer, path)
            if any(tokenizer.unk_id in form for form in forms):
                self.counts["with_unknown_words"] += 1
                continue
            first = lines.setdefault(np.array(forms[0], "<u4").tobytes(), entry)
            if first.class_name != entry.class_name:
                raise UserError(
                    f"{path}: {entry.phrase!r} has the class {entry.class_name!r} in line"
                    f" {entry.line} and {first.class_name!r} in line {first.line}: keep one of"
                    " them."
                )
            self.counts["phrases" if first is entry else "repeated"] += 1
            for form in forms:
                self._codes.setdefault(np.array(form, "<u4").tobytes(), codes[entry.class_name])
        # Where phrases may begin.
        sizes: dict[int, set[int]] = {}
        self._is_phrase = np.zeros(len(tokenizer.pieces), bool)  # a single id
        self._has_bucket = np.zeros(_BUCKETS, bool)  # two ids that a phrase begins with
        for key in self._codes:
            first, *others = np.frombuffer(key, "<u4").tolist()
            sizes.setdefault(first, set()).add(1 + len(others))
            if others:
                self._has_bucket[(first * _FACTOR + others[0]) % _BUCKETS] = True
            else:
                self._is_phrase[first] = True
        # The lengths in tokens of the phrases that begin with an id, longest first.
        self._sizes = {first: sorted(many, reverse=True) for first, many in sizes.items()}

    def match(self, ids: np.ndarray) -> np.ndarray:
        """Returns the units of rows: from left to right, the longest phrase that begins at a word.

        Args:
          ids: int[tokens], of rows `[CLS] A [SEP] B [SEP]` one after the other, or of a part.

        Returns:
          int32[tokens]: `CONTINUES` in a unit after its first token, and for [CLS] and [SEP];
          `WORD` at the first token of a word that is in no phrase; a larger number at the first
          token of a phrase. As in the released program, a piece that continues a word at the start
          of B belongs to the last unit of A; at the start of A it begins a word.
        """
        ids = np.asarray(ids, np.int64)
        begins_word = ~(self._is_continuation | self._is_special)[ids]
        codes = begins_word.astype(np.int32)
        codes[1:][(ids[:-1] == self.cls_id) & ~self._is_special[ids[1:]]] = WORD
        buckets = (ids[:-1] * _FACTOR + ids[1:]) % _BUCKETS
        may_begin = self._is_phrase[ids]
        may_begin[:-1] |= self._has_bucket[buckets]
        places = np.flatnonzero(begins_word & may_begin)
        # Whether a word may end before each place.
        ends = np.append(~self._is_continuation[ids], True).tolist()
        data, stop = ids.astype("<u4").tobytes(), 0
        for place, first in zip(places.tolist(), ids[places].tolist(), strict=True):
            if place < stop:
                continue
            for size in self._sizes.get(first, ()):
                end = place + size
                if end >= len(ends) or not ends[end]:
                    continue
                if code := self._codes.get(data[4 * place : 4 * end]):
                    codes[place:end] = CONTINUES
                    codes[place] = code
                    stop = end
                    break
        return codes

    def count(self, ids: np.ndarray, codes: np.ndarray, masked: np.ndarray | None) -> Counter[str]:
        """Counts the units in rows by kind.

        Args:
          ids: int[tokens], as for `match`.
          codes: its result.
          masked: int[masked], the masked places; None if masks are drawn later.

        Returns:
          `units`, `phrases`, `phrase_tokens`, `unit_tokens` (that can be masked), and `phrases/C`
          for each class C; with masks also `masked_tokens`, `masked_phrase_tokens`,
          `masked_phrases` and `masked_phrases/C`.
        """
        is_word = ~self._is_special[ids]
        # Whether each token is part of a phrase: the last unit that began before it is one.
        marks = np.where(is_word, codes, WORD)
        latest = np.maximum.accumulate(np.where(marks > 0, np.arange(marks.size), 0))
        phrases = marks[latest] >= PHRASE
        counts = Counter(
            units=int((codes > 0).sum()),
            unit_tokens=int(is_word.sum()),
            phrase_tokens=int(phrases.sum()),
        )
        counts.update(self._by_class("phrases", codes))
        if masked is not None:
            counts["masked_tokens"] = masked.size
            counts["masked_phrase_tokens"] = int(phrases[masked].sum())
            counts.update(self._by_class("masked_phrases", codes[masked]))
        return counts

    def _by_class(self, name: str, codes: np.ndarray) -> dict[str, int]:
        counts = np.bincount(codes, minlength=PHRASE + len(self.classes))[PHRASE:].tolist()
        by_class = {f"{name}/{of}": n for of, n in zip(self.classes, counts, strict=True)}
        return {name: sum(counts)} | by_class


def _forms(entry: Entry, tokenizer: Tokenizer, path: str) -> list[list[int]]:
    """Returns the ids of a phrase after a space and, where it may begin a word, without one.

    SentencePiece marks the space before a word, and Chinese has none. A phrase of letters begins a
    word after a space only.
    """
    ids = tokenizer.encode(entry.phrase)
    if not ids:
        raise UserError(
            f"{path}, line {entry.line}: the phrase {entry.phrase!r} has no tokens: remove it."
        )
    forms = [ids]
    if is_cjk(entry.phrase[0]) or is_punctuation(entry.phrase[0]):
        before, both = tokenizer.encode("."), tokenizer.encode(f".{entry.phrase}")
        inner = both[len(before) :]
        if both[: len(before)] == before and inner != ids and inner:
            forms.append(inner)
    return forms
