"""WordPiece with rules for words other than BERT's, and the tokenizer.json that has them.

`WordRules` are switches for how text becomes words. google-research/bert lacks some of them, but
the components of BERT in the `tokenizers` library have all: `BertNormalizer`, `BertPreTokenizer`
and `WordPiece`. A vocab.txt has no place for them, so the vocabulary is a tokenizer.json, also in
workdirs. `data.lowercase` still sets the case.

A file with other components is refused by name, since its ids would differ.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import SPECIAL_TOKENS, WordRules
from bert_jax.text.wordpiece import WordPieceTokenizer

Json = Mapping[str, Any]

# Of the components that `formats.hf_tokenizer` writes: their types, without and with folding.
_OUR_CLEANING = ["Replace", "Replace"]
_OUR_LOWERCASE, _OUR_ACCENTS = ["Replace", "Lowercase"], ["Replace", "NFD", "Replace"]
_OUR_SPLITS = ["Split", "Split"]
_FIRST_IDEOGRAPHS = "\u4e00-"


@dataclasses.dataclass(frozen=True)
class Components:
    """What a tokenizer.json of WordPiece says.

    Attributes:
      ids: piece -> id.
      rules: how text becomes words.
      max_word_length: longer words are [UNK].
    """

    ids: dict[str, int]
    rules: WordRules
    max_word_length: int


def read_components(content: Json, path: str) -> Components:
    """Returns the settings in a tokenizer.json; raises UserError if it has any but BERT's."""
    model = content["model"]
    for name, expected in (("continuing_subword_prefix", "##"), ("unk_token", SPECIAL_TOKENS[1])):
        if (value := model.get(name, expected)) != expected:
            raise UserError(f"{path} has {name}={value!r}: only {expected!r} is supported.")
    contents = (token["content"] for token in content.get("added_tokens") or ())
    if added := [token for token in contents if token not in SPECIAL_TOKENS]:
        raise UserError(
            f"{path} has added tokens ({', '.join(map(repr, added[:8]))}), which are found in text"
            " before it is split into words: only BERT's special tokens are supported."
        )
    normalizer, splits = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    if (rules := _our_rules(normalizer, splits)) is None:
        for name, part, expected in (
            ("normalizer", normalizer, "BertNormalizer"),
            ("pre_tokenizer", splits, "BertPreTokenizer"),
        ):
            if (kind := part.get("type", "none")) != expected:
                kind = " then ".join(_types(part, f"{name.replace('_', '')}s")) or kind
                raise UserError(f"{path} has the {name} {kind}: only {expected} is supported.")
        if normalizer.get("clean_text", True) is not True:
            raise UserError(f"{path} has clean_text=False: only True is supported.")
        rules = WordRules(
            normalizer.get("lowercase", True),
            normalizer.get("strip_accents"),
            normalizer.get("handle_chinese_chars", True),
        )
    length = model.get("max_input_chars_per_word", WordPieceTokenizer.max_word_length)
    special = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    return Components(dict(model["vocab"]) | special, rules, length)


def _our_rules(normalizer: Json, splits: Json) -> WordRules | None:
    """Returns the rules in components that this package wrote; None: they are others."""
    types = _types(normalizer, "normalizers")
    lowercase, strip = "Lowercase" in types, "NFD" in types
    wanted = _OUR_CLEANING + _OUR_LOWERCASE * lowercase + _OUR_ACCENTS * strip
    if types != wanted or _types(splits, "pretokenizers") != _OUR_SPLITS:
        return None
    has_ideographs = _FIRST_IDEOGRAPHS in splits["pretokenizers"][-1]["pattern"].get("Regex", "")
    return WordRules(lowercase, None if strip == lowercase else strip, has_ideographs)


def _types(component: Json, name: str) -> list[str]:
    return [step["type"] for step in component.get(name) or ()]


class RuledWordPieceTokenizer(WordPieceTokenizer):
    """WordPiece with the rules in its file, a tokenizer.json with BERT's components."""

    KIND = "wordpiece_rules"

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the tokenizer.json"):
        try:
            content = json.loads(vocabulary)
        except ValueError as error:
            raise UserError(f"{path} cannot be read: {error}.") from None
        found = read_components(content, path)
        super().__init__("\n".join(ordered_pieces(found.ids, path)).encode(), lowercase, path)
        self._arguments = (vocabulary, lowercase, path)
        self._rules = dataclasses.replace(found.rules, lowercase=lowercase)
        self.max_word_length = found.max_word_length
        self.fingerprint = self._fingerprint(vocabulary)


def ordered_pieces(ids: Mapping[str, int], path: str) -> list[str]:
    """Returns the pieces by id. Raises UserError if the ids are not 0, 1, 2 ..."""
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise UserError(
            f"{path} does not number its pieces 0, 1, 2 ...: name a vocab.txt with --vocab=PATH."
        )
    return pieces


def ruled_vocabulary(pieces: list[str], rules: WordRules, max_word_length: int) -> bytes:
    """Returns the file of a `RuledWordPieceTokenizer`."""
    content = {
        "version": "1.0",
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": rules.split_ideographs,
            "strip_accents": rules.strip_accents,
            "lowercase": rules.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": SPECIAL_TOKENS[1],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": max_word_length,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
        },
    }
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()
