"""The byte-level BPE tokenizers of RoBERTa and ModernBERT, read from a tokenizer.json.

    >>> tokenizer = load_tokenizer("roberta/tokenizer.json", False)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Unaffable!")]
    ['Un', 'aff', 'able', '!']

Words are cut by the pattern of GPT-2 (Radford et al. 2019) and are strings of bytes, each shown as
one character (" " as "Ġ"), so that there is no unknown text. Pairs of pieces are merged in the
order of the file's merges. The ids are those of the `tokenizers` library, for every text that is
Unicode; special tokens in text are text, unless asked for.

Of the components of a tokenizer.json, the normalizer may be NFC or missing, the pre-tokenizer must
be ByteLevel; others are refused by name.
"""

import heapq
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.gpt_tokenizer import places_of_changed_text
from bert_jax.text.tokenization import SPECIAL_TOKENS, Memo, Tokenizer, is_cjk, is_punctuation

# Spellings of [PAD] [UNK] [CLS] [SEP] [MASK].
SPELLINGS = (
    ("[PAD]", "<pad>"),
    ("[UNK]", "<unk>"),
    ("[CLS]", "<s>"),
    ("[SEP]", "</s>"),
    ("[MASK]", "<mask>"),
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# The pattern of GPT-2, for a text in which other characters stand for all that are not ASCII.
_WORDS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\t-\r ]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
# The pattern's white space beyond ASCII.
_SPACES = "\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _kind(code: int) -> str:
    """Returns an ASCII character of the same kind: letter, number, white space or other."""
    character = chr(code)
    if code < 128:
        return character
    if character in _SPACES:
        return "\t"
    return {"L": "A", "N": "0"}.get(unicodedata.category(character)[0], "!")


_KINDS = Memo(_kind)


def _byte_characters() -> list[str]:
    """Returns the character that stands for each byte (openai/gpt-2 `bytes_to_unicode`)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


_CHARACTERS = _byte_characters()
_BYTES = {character: byte for byte, character in enumerate(_CHARACTERS)}


def find_special(ids: Mapping[str, int]) -> list[str]:
    """Returns the pieces for [PAD] [UNK] [CLS] [SEP] [MASK]; "" for those that are missing."""
    return [next((name for name in names if name in ids), "") for names in SPELLINGS]


class ByteLevelTokenizer(Tokenizer):
    """Byte-level BPE.

    Args:
      vocabulary: the bytes of a tokenizer.json.
      lowercase: must be False: byte-level vocabularies have both cases.
      path: name of the file in errors.

    Raises:
      UserError: it is not a tokenizer.json of this kind, or a special token is missing.
    """

    KIND = "byte_level"
    MAX_WORDS = 1 << 17

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the tokenizer.json"):
        super().__init__(vocabulary, lowercase, path)
        if lowercase:
            raise UserError(
                f"{path} is a byte-level BPE, which has case: set data.lowercase=False."
            )
        content = _read(vocabulary, path)
        self._normalizes = _check(content, path)
        self._prefix = " " * bool(content["pre_tokenizer"].get("add_prefix_space"))
        model, added = content["model"], content.get("added_tokens") or []
        self._ids = model["vocab"]
        ids = self._ids | {token["content"]: token["id"] for token in added}
        self.pieces = tuple(sorted(ids, key=ids.__getitem__))
        if [ids[piece] for piece in self.pieces] != list(range(len(ids))):
            raise UserError(f"{path} does not number its pieces 0, 1, 2 ...: get the file again.")
        names = find_special(ids)
        if missing := [
            name for name, found in zip(SPECIAL_TOKENS, names, strict=True) if not found
        ]:
            raise UserError(
                f"{path} lacks {', '.join(missing)}: a byte-level BPE for BERT has a token for each"
                f" of {' '.join(SPECIAL_TOKENS)}."
            )
        self._special = {name: ids[name] for name in names}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self._special.values()
        self._special[SPECIAL_TOKENS[-1]] = self.mask_id  # whatever the file calls it
        self.end_id = self.sep_id
        # RoBERTa has </s></s> between two texts.
        self.num_separators = 2 if names[3] == "</s>" else 1
        self._unknown = ids[model["unk_token"]] if model.get("unk_token") else None
        self._fuses, self._whole = bool(model.get("fuse_unk")), bool(model.get("ignore_merges"))
        special = [token for token in added if token.get("special")]
        self._added = [token for token in added if token not in special]
        self._stripped = {token["content"] for token in special if token.get("lstrip")}
        if names[-1] in self._stripped:
            self._stripped.add(SPECIAL_TOKENS[-1])
        names = {token["content"] for token in special} | self._special.keys()
        self.is_continuation = np.array([p not in names and _continues(p) for p in self.pieces])
        self.random_words = np.arange(len(self.pieces), dtype=np.int32)
        merges = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        self._ranks = {(first, second): rank for rank, (first, second) in enumerate(merges)}
        self._word_ids = Memo(self._encode_word)
        self._splitters = _splitters(self._added)

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word of a labelled file, as after a space."""
        return self.encode(f" {word.lstrip()}")

    def decode(self, ids: Iterable[int]) -> str:
        text, data = "", bytearray()
        for index in ids:
            piece = self.pieces[index]
            if piece in self._ids and piece not in self._special:
                data += bytes(_BYTES[character] for character in piece if character in _BYTES)
            else:
                text += data.decode("utf-8", "replace") + f" {piece}"
                data.clear()
        return (text + data.decode("utf-8", "replace")).strip()

    def continues(self, ids: np.ndarray) -> np.ndarray:
        continues = self.is_continuation[ids]
        continues[:1] = False
        return continues

    def piece_lengths(self) -> tuple[int, ...]:
        """Returns the number of characters that begin in each piece, without spaces."""
        counts = (0 if piece in self._special else _count(piece) for piece in self.pieces)
        return tuple(counts)

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        text = _LONE_SURROGATE.sub("\ufffd", text)
        spans = []
        for places, part, index in self._parts(text, [(i, i + 1) for i in range(len(text))]):
            if index is not None:
                spans.append((places[0][0], places[-1][1]))
                continue
            prefix = self._prefix * (not part.startswith(" "))
            places = [*places[:1] * len(prefix), *places]
            for begin, word in _words(prefix + part):
                # The character of each byte of the word.
                sources = [
                    (place, character.isspace())
                    for place, character in zip(places[begin:], word, strict=False)
                    for _ in character.encode()
                ]
                at = 0
                for size, index in self._tokens(word):
                    inside = sources[at : at + size]
                    at += size
                    if index is None:
                        continue
                    seen = [place for place, is_space in inside if not is_space]
                    seen = seen or [place for place, _ in inside]
                    spans.append((seen[0][0], seen[-1][1]))
        return spans

    def _encode(self, text: str) -> list[int]:
        if not text.isascii():
            text = _LONE_SURROGATE.sub("\ufffd", text)
        if len(self._word_ids) >= self.MAX_WORDS:
            self._word_ids.clear()
        if not self._added:
            return self._encode_part(self._normalized(text))
        ids: list[int] = []
        for _, part, index in self._parts(text):
            ids += self._encode_part(part) if index is None else [index]
        return ids

    def _encode_part(self, text: str) -> list[int]:
        if self._prefix and text and not text.startswith(" "):
            text = self._prefix + text
        words = (word for _, word in _words(text))
        return list(chain.from_iterable(map(self._word_ids.__getitem__, words)))

    def _normalized(self, text: str) -> str:
        return unicodedata.normalize("NFC", text) if self._normalizes else text

    def _parts(self, text: str, places: Any = None) -> Iterator[tuple[Any, str, int | None]]:
        """Yields the parts of a text: added tokens, and normalized text between them.

        Those that are not normalized are found first.

        Args:
          text: the text.
          places: the characters [start, stop) of each character; None: they are not needed.

        Yields:
          The part's places, the part, and the token's id; None: it is text.
        """
        before, after = self._splitters
        for start, stop, index in _split(before, text):
            part, at = text[start:stop], places and places[start:stop]
            if index is not None:
                yield at, part, index
                continue
            normal = self._normalized(part)
            if at and normal != part:
                changed = [place or (0, 1) for place in places_of_changed_text(part, normal)]
                at = [(at[start][0], at[stop - 1][1]) for start, stop in changed]
            for start, stop, index in _split(after, normal):
                yield at and at[start:stop], normal[start:stop], index

    def _split_special(self, text: str) -> list[str]:
        """Splits at special tokens, of which some take the spaces before them."""
        names = (r"\s*" * (x in self._stripped) + f"({re.escape(x)})" for x in self._special)
        return [part for part in re.split("|".join(names), text) if part]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(index for _, index in self._tokens(word) if index is not None)

    def _tokens(self, word: str) -> list[tuple[int, int | None]]:
        """Returns the bytes and the id of each piece of a word; None: the vocabulary lacks it."""
        tokens: list[tuple[int, int | None]] = []
        is_unknown = False
        for piece in self._pieces_of(word):
            index = self._ids.get(piece, self._unknown)
            was_unknown, is_unknown = is_unknown, piece not in self._ids
            if was_unknown and is_unknown and self._fuses:
                tokens[-1] = tokens[-1][0] + len(piece), index
            else:
                tokens.append((len(piece), index))
        return tokens

    def _pieces_of(self, word: str) -> list[str]:
        """Merges two neighbours at a time: those of the lowest rank, of these the first."""
        parts = [_CHARACTERS[byte] for byte in word.encode()]
        if self._whole and "".join(parts) in self._ids:
            return ["".join(parts)]
        size, rank = len(parts), self._ranks.get
        after, before = list(range(1, size + 1)), list(range(-1, size - 1))
        pairs = enumerate(zip(parts, parts[1:], strict=False))
        queue = [(found, at) for at, pair in pairs if (found := rank(pair)) is not None]
        heapq.heapify(queue)
        while queue:
            best, at = heapq.heappop(queue)
            right = after[at]
            if right >= size or rank((parts[at], parts[right])) != best:
                continue  # one of the two has been merged since
            parts[at] += parts[right]
            parts[right] = ""
            after[at] = end = after[right]
            if end < size:
                before[end] = at
            for left in (before[at], at):
                if left >= 0 and after[left] < size:
                    found = rank((parts[left], parts[after[left]]))
                    if found is not None:
                        heapq.heappush(queue, (found, left))
        return [part for part in parts if part]


def _count(piece: str) -> int:
    found = bytes(_BYTES.get(character, 0x20) for character in piece)
    return sum(byte & 0xC0 != 0x80 and byte not in b" \t\n\v\f\r" for byte in found)


def _continues(piece: str) -> bool:
    """Returns whether a piece continues a word; marks and ideographs are words, as in WordPiece."""
    text = bytes(_BYTES.get(character, 0x20) for character in piece).decode("utf-8", "replace")
    first = text[:1]
    return bool(first) and not (first.isspace() or is_punctuation(first) or is_cjk(first))


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yields the place and the text of each word, with the space before it."""
    kinds = text if text.isascii() else text.translate(_KINDS)
    for match in _WORDS.finditer(kinds):
        yield match.start(), text[match.start() : match.end()]


def _splitters(added: list[dict[str, Any]]) -> list[tuple[re.Pattern[str], dict] | None]:
    """Returns the patterns of added tokens that are found before normalization, and after it."""
    splitters: list[tuple[re.Pattern[str], dict] | None] = []
    for normalized in (False, True):
        tokens = [token for token in added if bool(token.get("normalized")) == normalized]
        names = sorted((token["content"] for token in tokens), key=len, reverse=True)
        by_name = {token["content"]: token for token in tokens}
        pattern = re.compile("|".join(map(re.escape, names)))
        splitters.append((pattern, by_name) if names else None)
    return splitters


def _split(splitter: Any, text: str) -> Iterator[tuple[int, int, int | None]]:
    """Yields the start, stop and id of the added tokens in a text, and of the text between them."""
    end = 0
    for match in splitter[0].finditer(text) if splitter else ():
        token, (start, stop) = splitter[1][match[0]], match.span()
        if token.get("single_word") and re.search(
            r"\w", text[start - 1 : start] + text[stop : stop + 1]
        ):
            continue
        if token.get("lstrip"):
            start = max(end, len(text[:start].rstrip()))
        if token.get("rstrip"):
            stop += len(text[stop:]) - len(text[stop:].lstrip())
        if start > end:
            yield end, start, None
        yield start, stop, token["id"]
        end = stop
    if end < len(text):
        yield end, len(text), None


def _read(vocabulary: bytes, path: str) -> dict[str, Any]:
    try:
        content = json.loads(vocabulary)
        is_bpe = content["model"]["type"] == "BPE" and isinstance(content["model"]["vocab"], dict)
    except (ValueError, TypeError, KeyError):
        is_bpe, content = False, {}
    if not is_bpe:
        raise UserError(
            f"{path} is not the tokenizer.json of a byte-level BPE: its model must have the type"
            " 'BPE', a vocab and merges."
        )
    return content


def _check(content: dict[str, Any], path: str) -> bool:
    """Returns whether text is normalized to NFC.

    Raises:
      UserError: the tokenizer has components that this module does not have.
    """
    model, words = content["model"], content.get("pre_tokenizer") or {}
    found = {
        "pre_tokenizer": words.get("type") if words.get("use_regex", True) else "no pattern",
        "normalizer": (content.get("normalizer") or {}).get("type"),
        "continuing_subword_prefix": model.get("continuing_subword_prefix") or None,
        "end_of_word_suffix": model.get("end_of_word_suffix") or None,
        "byte_fallback": bool(model.get("byte_fallback")),
        "dropout": model.get("dropout") or None,
    }
    allowed = {
        "pre_tokenizer": ("ByteLevel",),
        "normalizer": (None, "NFC"),
        "byte_fallback": (False,),
    }
    for name, value in found.items():
        if value not in (choices := allowed.get(name, (None,))):
            raise UserError(
                f"{path} has {name}={value!r}: only {' or '.join(map(repr, choices))} is supported."
            )
    return found["normalizer"] == "NFC"
