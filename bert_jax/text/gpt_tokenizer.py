"""GPT's released byte-pair tokenizer (Radford et al. 2018), on ftfy and spaCy.

    >>> tokenizer = load_tokenizer("model/", lowercase=True)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Mr. Darcy's unaffable.")]
    ['mr.</w>', 'dar', 'cy</w>', "'s</w>", 'un', 'aff', 'able</w>', '.</w>']

The ids are those of openai/finetune-transformer-lm's `TextEncoder` (commit a69b5c4) with the same
versions of ftfy and spaCy. What happens to a text before its words are cut into pieces:

    ftfy        repairs wrongly decoded text, curly quotes and control characters
    rules       put spaces around marks that spaCy splits badly, and unify spaces and line breaks
    spaCy       splits into words and marks, by its rules for English; it needs no model

A split may depend on its context, as some of spaCy's do, so no cache of text can be exact.
Therefore spaCy sees every text whole, and only the pieces of its words are cached.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import Any, cast

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.gpt_vocabulary import UNKNOWN, unpack
from bert_jax.text.tokenization import Memo, Tokenizer, tidy

# Appended to the pieces of the vocabulary in this order, as the released program does.
START, DELIMITER, CLASSIFY = SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_")
# At the end of a word's last piece.
END = "</w>"
# The space before "n't" and "'s", which spaCy splits off.
_CONTRACTION = re.compile(r"(?<=\w) (?=(n't|'\w{1,2})\b)")

# Of openai/finetune-transformer-lm, text_utils.py.
_DASHES = str.maketrans({"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"})
# A run of the same mark. The released pattern is also meant to have the backslash, but its
# string is not raw, so what is written for a backslash is a second "+".
_MARKS = re.compile(r"([-~!\";?+,)(/*\[\]}{|_])\1*")
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_SPACES = re.compile(r"[^\S\n]+")
_RULES = ((_MARKS, r" \g<0> "), (_LINE_BREAKS, " \n "), (_SPACES, " "))

# Text that ftfy leaves as it is: in ASCII it repairs only HTML entities and control characters.
_PLAIN = re.compile(r"[\n -%'-~]*")
_WORDS = re.compile(r"\s+|\S+")

# The characters [start, stop) of a text; None: of a space that the rules have put there.
Place = tuple[int, int] | None


class GptTokenizer(Tokenizer):
    """Byte-pair tokenizer of lower case words.

    Sequences are `_start_ A _classify_` or `_start_ A _delimiter_ B _classify_`. There is no
    [MASK]: `mask_id` is -1, and what needs one refuses the tokenizer. Padding is id 0, as in the
    released program: no loss counts it, and no token attends to it.

    Args:
      vocabulary: the bytes of a `vocab.gpt` (gpt_vocabulary.py). The three special tokens are
        appended where it lacks them.
      lowercase: must be True; words are lower cased after they are split.
      path: name of the vocabulary in errors.

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
        self._fix, self._make_language = _load_libraries()
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
        words: Any = self._splitter(clean(self._fix(text)))
        hashes = words.to_array("ORTH").tolist()  # spaCy's hash of each word
        return list(chain.from_iterable(map(self._word_ids.__getitem__, hashes)))

    def decode(self, ids: Iterable[int]) -> str:
        pieces = (self.pieces[i] for i in ids)
        text = "".join(f" {p} " if p in SPECIAL_TOKENS else p.replace(END, " ") for p in pieces)
        return tidy(_CONTRACTION.sub("", re.sub(" +", " ", text).strip(" ")))

    def continues(self, ids: np.ndarray) -> np.ndarray:
        return np.append(False, ~self._ends_word[ids[:-1]])[: len(ids)]

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        cleaned, places = places_of_clean_text(text, self._fix(text))
        spans, words = [], cast(Iterable[Any], self._splitter(cleaned))
        for word in words:
            pairs = zip(word.text, places[word.idx : word.idx + len(word.text)], strict=True)
            # Lower case may have more characters.
            inside: list[Any] = [place for character, place in pairs for _ in character.lower()]
            start = 0
            for piece in self._pieces_of(word.text.lower()):
                stop = start + len(piece.removesuffix(END))
                spans.append((inside[start][0], inside[stop - 1][1]))
                start = stop
        return spans

    def _renew(self) -> None:
        """Forgets all words; spaCy remembers each one that it has seen, too."""
        self._splitter = self._make_language().tokenizer
        strings = self._splitter.vocab.strings
        self._word_ids = Memo(lambda key: self._encode_word(strings[key]))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids.get(piece, self.unk_id) for piece in self._pieces_of(word.lower()))

    def _pieces_of(self, word: str) -> list[str]:
        """Merges neighbors, those of the lowest rank first, everywhere in the word at once."""
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


# ------------------------------------------------------------- the text before its pieces


def _load_libraries() -> tuple[Callable[[str], str], Callable[[], Any]]:
    """Returns ftfy's function text -> text, and spaCy's class for English."""
    try:
        import ftfy
        from spacy.lang.en import English
    except ImportError as error:
        raise UserError(
            f"GPT's tokenizer needs the package {error.name}: pip install 'bert_jax[gpt]' (ftfy"
            " and spaCy). Without them its ids would be others."
        ) from None

    def fix(text: str) -> str:
        return text if _PLAIN.fullmatch(text) else ftfy.fix_text(text)

    return fix, English


def clean(text: str) -> str:
    """Applies the rules to a text that ftfy has repaired.

    The result has no white space except single spaces and " \\n " for line breaks.
    """
    text = text.translate(_DASHES)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


def places_of_clean_text(text: str, fixed: str) -> tuple[str, list[Place]]:
    """Returns clean(fixed), and the characters [start, stop) of `text` for each of its characters.

    Args:
      text: the text as given.
      fixed: the text after ftfy.
    """
    source = zip(fixed, places_of_changed_text(text, fixed), strict=True)
    places = [place for old, place in source for _ in old.translate(_DASHES)]
    cleaned = fixed.translate(_DASHES)
    for pattern, replacement in _RULES:
        cleaned, places = _substitute(pattern, replacement, cleaned, places)
    start = len(cleaned) - len(cleaned.lstrip())
    stop = max(start, len(cleaned.rstrip()))
    return cleaned[start:stop], places[start:stop]


def _substitute(
    pattern: re.Pattern[str], replacement: str, text: str, places: list[Place]
) -> tuple[str, list[Place]]:
    """Returns what `pattern.sub` does, and the place of each character of the result."""
    parts: list[str] = []
    result: list[Place] = []
    end = 0
    for match in pattern.finditer(text):
        start, new = match.start(), match.expand(replacement)
        parts += text[end:start], new
        result += places[end:start]
        end = match.end()
        inside = places[start:end]
        known = [place for place in inside if place]
        if new.strip(" ") == match[0]:  # spaces around it
            result += [None, *inside, None]
        else:
            result += [(known[0][0], known[-1][1]) if known else None] * len(new)
    return "".join([*parts, text[end:]]), result + places[end:]


def places_of_changed_text(text: str, fixed: str) -> list[Place]:
    """Returns the characters of `text` that each character of a repaired text comes from.

    Runs of text between spaces are aligned first, then the characters of runs that have changed.
    If characters are replaced by a different number of them, each new one comes from all.
    """
    if text == fixed:
        return [(i, i + 1) for i in range(len(text))]
    places: list[Place] = []
    at = 0
    for runs, new_runs in _changes(_WORDS.findall(text), _WORDS.findall(fixed)):
        old, new = "".join(runs), "".join(new_runs)
        parts = [(old, new)] if len(old) == len(new) else _changes(old, new)
        for before, after in parts:
            stop = at + len(before)
            if len(before) == len(after):
                places += [(i, i + 1) for i in range(at, stop)]
            else:
                places += [(at, stop)] * len(after)
            at = stop
    return places


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple]:
    """Yields parts of both, in order and complete: equal ones, and what replaces what."""
    # ftfy replaces spaces with other ones, which must not break the alignment.
    keys = ([" " if part.isspace() else part for part in parts] for parts in (old, new))
    for _, start, stop, *place in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        yield old[start:stop], new[slice(*place)]
