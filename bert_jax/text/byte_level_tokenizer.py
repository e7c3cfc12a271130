"""The byte-level BPE tokenizers of RoBERTa and ModernBERT, read from a tokenizer.json.

    >>> tokenizer = load_tokenizer("roberta/tokenizer.json", False)  # bert_jax.text.tokenizers
    >>> [tokenizer.pieces[i] for i in tokenizer.encode("Unaffable!")]
    ['Un', 'aff', 'able', '!']

Words are cut by the pattern of GPT-2 (Radford et al. 2019) and are strings of bytes, each shown as
one character (" " as "Ġ"), so there is no unknown text. The package `tokenizers`, of the extra
`bpe`, merges pairs of pieces in the order of the file's merges. Special tokens in text are plain
text, unless asked for.

Of the components of a tokenizer.json, the normalizer may be NFC, Lowercase, a sequence of these or
missing, the pre-tokenizer must be ByteLevel; others are refused by name.
"""

import bisect
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import SPECIAL_TOKENS, Tokenizer, is_cjk, is_punctuation

# Spellings of [PAD] [UNK] [CLS] [SEP] [MASK].
SPELLINGS = (
    ("[PAD]", "<pad>"),
    ("[UNK]", "<unk>"),
    ("[CLS]", "<s>"),
    ("[SEP]", "</s>"),
    ("[MASK]", "<mask>"),
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _byte_characters() -> list[str]:
    """Returns the character that stands for each byte (openai/gpt-2 `bytes_to_unicode`)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


_BYTES = {character: byte for byte, character in enumerate(_byte_characters())}


def find_special(ids: Mapping[str, int]) -> list[str]:
    """Returns the pieces for [PAD] [UNK] [CLS] [SEP] [MASK]; "" for those that are missing."""
    return [next((name for name in names if name in ids), "") for names in SPELLINGS]


class ByteLevelTokenizer(Tokenizer):
    """Byte-level BPE.

    Args:
      vocabulary: the bytes of a tokenizer.json.
      lowercase: whether the normalizer of the file lower-cases text.
      path: name of the file in errors.

    Raises:
      UserError: it is not a tokenizer.json of this kind, it has another case, a special token is
        missing, or the package `tokenizers` is.
    """

    KIND = "byte_level"

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the tokenizer.json"):
        super().__init__(vocabulary, lowercase, path)
        content = _read(vocabulary, path)
        if lowercase != (found := lowercases(content)):
            verb = "lower-cases text" if found else "keeps case"
            raise UserError(f"The normalizer of {path} {verb}: set data.lowercase={found}.")
        self._library = _open(content, path)
        added = content.get("added_tokens") or []
        self._ids = content["model"]["vocab"]
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
        special = [token for token in added if token.get("special")]
        self._stripped = {token["content"] for token in special if token.get("lstrip")}
        if names[-1] in self._stripped:
            self._stripped.add(SPECIAL_TOKENS[-1])
        names = {token["content"] for token in special} | self._special.keys()
        self.is_continuation = np.array([p not in names and _continues(p) for p in self.pieces])
        self.random_words = np.arange(len(self.pieces), dtype=np.int32)

    def encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word of a labelled file, as after a space."""
        return self.encode(f" {word.lstrip()}")

    def decode(self, ids: Iterable[int]) -> str:
        text, data = "", bytearray()
        for index in ids:
            piece = self.pieces[index]
            if piece in self._ids and piece not in self._special:
                data += _bytes(piece)
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
        return tuple(0 if piece in self._special else _count(piece) for piece in self.pieces)

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        offsets = self._encoding(text).offsets
        starts = sorted({start for start, _ in offsets} | {len(text)})
        spans = []
        for start, stop in offsets:
            # What follows is of no other piece: a mark that NFC has joined with its letter.
            piece = text[start : starts[bisect.bisect_left(starts, stop)]]
            if bare := piece.strip():
                start += len(piece) - len(piece.lstrip())
                stop = start + len(bare)
            spans.append((start, stop))
        return spans

    def _encode(self, text: str) -> list[int]:
        return self._encoding(text).ids

    def _encoding(self, text: str) -> Any:
        if not text.isascii():
            text = _LONE_SURROGATE.sub("\ufffd", text)
        return self._library.encode(text, add_special_tokens=False)

    def _split_special(self, text: str) -> list[str]:
        """Splits at special tokens, some of which take the spaces before them."""
        names = (r"\s*" * (x in self._stripped) + f"({re.escape(x)})" for x in self._special)
        return [part for part in re.split("|".join(names), text) if part]


def lowercases(content: Mapping[str, Any]) -> bool:
    """Returns whether a tokenizer.json lower-cases text."""
    return "Lowercase" in _normalizers(content)


def _normalizers(content: Mapping[str, Any]) -> list[str]:
    return [step["type"] for step in component_steps(content.get("normalizer"), "normalizers")]


def component_steps(component: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Returns the steps of a component of a tokenizer.json, which may be a sequence.

    Args:
      component: its content.
      name: key of the steps of a sequence.
    """
    if not component:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for part in component.get(name, ()) for step in component_steps(part, name)]


def _bytes(piece: str) -> bytes:
    return bytes(_BYTES.get(character, 0x20) for character in piece)


def _count(piece: str) -> int:
    return sum(byte & 0xC0 != 0x80 and byte not in b" \t\n\v\f\r" for byte in _bytes(piece))


def _continues(piece: str) -> bool:
    """Returns whether a piece continues a word; marks and ideographs are words, as in WordPiece."""
    first = _bytes(piece).decode("utf-8", "replace")[:1]
    return bool(first) and not (first.isspace() or is_punctuation(first) or is_cjk(first))


def _read(vocabulary: bytes, path: str) -> dict[str, Any]:
    """Returns the content of a tokenizer.json, whose components keep bytes and special tokens."""
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
    model, words = content["model"], content.get("pre_tokenizer") or {}
    others = ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout")
    kind = words.get("type") if words.get("use_regex", True) else "no pattern"
    for name, value, allowed in (
        ("pre_tokenizer", kind, ("ByteLevel",)),
        *(("normalizer", step, ("NFC", "Lowercase")) for step in _normalizers(content)),
        *((name, model.get(name) or None, (None,)) for name in others),
    ):
        if value not in allowed:
            raise UserError(
                f"{path} has {name}={value!r}: only {' or '.join(map(repr, allowed))} is supported."
            )
    return content


def _open(content: Mapping[str, Any], path: str) -> Any:
    """Returns the `tokenizers.Tokenizer` of a file, which adds and removes nothing."""
    try:
        from tokenizers import Tokenizer as LibraryTokenizer  # of the extra `bpe`
    except ImportError:
        raise UserError(
            f"{path} is a byte-level BPE, which the package tokenizers encodes: pip install"
            " 'bert_jax[bpe]'."
        ) from None
    plain = {**content, **dict.fromkeys(("truncation", "padding", "post_processor"))}
    try:
        found = LibraryTokenizer.from_str(json.dumps(plain))
    except Exception as error:  # it raises no other class
        raise UserError(f"{path} cannot be used: {error}.") from None
    found.encode_special_tokens = True
    return found
