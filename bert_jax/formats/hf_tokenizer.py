"""Our tokenizers as a tokenizer.json, which the `tokenizers` library and transformers read.

The library's own BERT steps differ from google-research/bert in several ways (private-use
characters, a block of ideographs, words of 101 to 200 characters, the final sigma, another version
of Unicode). The file therefore spells every rule out: the sets of characters are those that our
tokenizer uses, written as ranges, so that the ids are ours wherever the file is read. Only lower
case, decomposition and, for SentencePiece, the normalization are the library's.
"""

import base64
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as proto

from bert_jax.text.sentencepiece_tokenizer import SPACE, SentencePieceTokenizer
from bert_jax.text.tokenization import (
    MAX_WORD_LENGTH,
    SPACES,
    SPECIAL_TOKENS,
    Tokenizer,
    WordPieceTokenizer,
    is_cjk,
    is_punctuation,
)

Json = dict[str, Any]

# The message of a .model file (made at import, so unknown to type checkers).
_Model: Any = getattr(proto, "ModelProto")  # noqa: B009

_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c2"
_MOST_BETWEEN = 30
# transformers' names of the special tokens, in the order of SPECIAL_TOKENS.
_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def tokenizer_json(tokenizer: Tokenizer, vocabulary: bytes) -> Json:
    """The content of tokenizer.json: text -> [CLS] ids [SEP], or a pair with token types.

    Args:
      tokenizer: ours.
      vocabulary: the bytes of the file that it was made of.

    Raises:
      ValueError: for a SentencePiece model of a kind that the library does not have.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        parts = _sentencepiece(tokenizer, vocabulary)
    elif isinstance(tokenizer, WordPieceTokenizer):
        parts = _wordpiece(tokenizer)
    else:
        raise ValueError(f"There is no tokenizer.json for a {type(tokenizer).__name__}.")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(_added_tokens(tokenizer), key=lambda token: token["id"]),
        "post_processor": _template(tokenizer),
        **parts,
    }


def tokenizer_config(tokenizer: Tokenizer, max_length: int) -> Json:
    """The content of tokenizer_config.json, which makes transformers read tokenizer.json as it is.

    `BertTokenizer` would put the library's own BERT steps in the place of ours.
    """
    names = dict(zip(_ROLES, _special_pieces(tokenizer), strict=True))
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": tokenizer.lowercase,
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }


def _special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """In the order of SPECIAL_TOKENS."""
    return (
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    )


def _special_pieces(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.pieces[index] for index in _special_ids(tokenizer)]


def _added_tokens(tokenizer: Tokenizer) -> Iterator[Json]:
    """The special tokens, found in text as `encode(special_tokens=True)` finds them."""
    for index in _special_ids(tokenizer):
        yield {
            "id": index,
            "content": tokenizer.pieces[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }


def _template(tokenizer: Tokenizer) -> Json:
    """[CLS] A [SEP], and [CLS] A [SEP] B [SEP] with type 1 from B on."""
    _, _, cls, sep, _ = _special_pieces(tokenizer)

    def special(name: str, type_id: int) -> Json:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def sequence(name: str, type_id: int) -> Json:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [special(cls, 0), sequence("A", 0), special(sep, 0)]
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), special(sep, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [index], "tokens": [name]} for name, index in ids.items()
        },
    }


def _wordpiece(tokenizer: WordPieceTokenizer) -> Json:
    """The steps of `basic_tokens`, then the longest pieces from the left."""
    clean = [_replace(_in_class(SPACES.match), " "), _replace(_in_class(_is_deleted), "")]
    fold = [*_lower(), *_decompose(), _replace(_in_class(_is_mark), "")]
    return {
        "normalizer": _sequence([*clean, *(fold if tokenizer.lowercase else [])]),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                _split(" +", "Removed"),
                _split(_in_class(_stands_alone), "Isolated"),
            ],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": SPECIAL_TOKENS[1],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD_LENGTH,
            "vocab": {piece: index for index, piece in enumerate(tokenizer.pieces)},
        },
    }


def _sentencepiece(tokenizer: SentencePieceTokenizer, vocabulary: bytes) -> Json:
    """The model's own normalization after ours, the mark for spaces, then its pieces."""
    model = _Model.FromString(vocabulary)
    spec, kind = model.normalizer_spec, model.trainer_spec
    if not (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces):
        raise ValueError(
            "A SentencePiece model that keeps spaces as they are or puts none before a text has no"
            " tokenizer.json: it needs add_dummy_prefix, remove_extra_whitespaces and"
            " escape_whitespaces."
        )
    steps = _lower() if tokenizer.lowercase else []
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    steps += [_replace(" {2,}", " "), _replace(" $", "")]
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first"}
    words = {**metaspace, "split": True}
    return {
        "normalizer": _sequence(steps),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, _cut(tokenizer)]},
        "decoder": words,
        "model": (_unigram if kind.model_type == kind.UNIGRAM else _bpe)(model, tokenizer.unk_id),
    }


def _cut(tokenizer: Tokenizer) -> Json:
    """Cuts the special tokens that are left in words after their first character: they are text."""
    parts = (
        f"(?<={re.escape(name[0])}){re.escape(name[1:])}" for name in _special_pieces(tokenizer)
    )
    return _split("|".join(parts), "Isolated")


def _unigram(model: Any, unk_id: int) -> Json:
    return {
        "type": "Unigram",
        "unk_id": unk_id,
        "vocab": [[piece.piece, piece.score] for piece in model.pieces],
        "byte_fallback": model.trainer_spec.byte_fallback,
    }


def _bpe(model: Any, unk_id: int) -> Json:
    """Two pieces merge if what they make is a piece, the one of the highest score first."""
    kind = model.trainer_spec
    if kind.model_type != kind.BPE:
        raise ValueError(
            "Only SentencePiece models of the kinds unigram and bpe have a tokenizer.json."
        )
    ids = {piece.piece: index for index, piece in enumerate(model.pieces)}
    ranked = sorted(model.pieces, key=lambda piece: -piece.score)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[unk_id].piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": kind.byte_fallback,
        "ignore_merges": False,
        "vocab": ids,
        "merges": [
            [piece[:cut], piece[cut:]]
            for piece in (row.piece for row in ranked if row.type == row.NORMAL)
            for cut in range(1, len(piece))
            if piece[:cut] in ids and piece[cut:] in ids
        ],
    }


def _sequence(normalizers: list[Json]) -> Json:
    return {"type": "Sequence", "normalizers": normalizers}


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _split(pattern: str, behavior: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _lower() -> list[Json]:
    """`str.lower`; the library's looks at each character by itself, so the final sigma goes first.

    Final is one that has a cased letter before it and none after it, not counting what may stand in
    between (accents, apostrophes). Without a bound on the latter, looking back takes time in
    proportion to all the text before.
    """
    cased, between = _in_class(_is_cased), _in_class(_is_case_ignorable)
    final = f"(?<={cased}{between}{{0,{_MOST_BETWEEN}}}){_SIGMA}(?!{between}*{cased})"
    return [_replace(final, _FINAL_SIGMA), {"type": "Lowercase"}]


def _decompose() -> list[Json]:
    """Normal form D, and the one decomposition that the library (0.23) does not know."""
    vowel = "\U00011938"
    return [_replace(vowel, unicodedata.normalize("NFD", vowel)), {"type": "NFD"}]


def _is_deleted(character: str) -> bool:
    is_control = unicodedata.category(character) in ("Cc", "Cf") and not SPACES.match(character)
    return is_control or character in "\0\ufffd"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def _stands_alone(character: str) -> bool:
    return is_punctuation(character) or is_cjk(character)


def _is_cased(character: str) -> bool:
    """Whether `str.lower` takes the character before a sigma for a letter of the word."""
    return (character + _SIGMA).lower()[-1] == _FINAL_SIGMA


def _is_case_ignorable(character: str) -> bool:
    """Whether `str.lower` looks past the character."""
    return ("A" + character + _SIGMA).lower()[-1] == _FINAL_SIGMA and not _is_cased(character)


@functools.cache
def _in_class(is_member: Callable[[str], Any]) -> str:
    """A regular expression for one of the characters of which `is_member` is true."""
    ranges = _ranges(code for code in range(0x110000) if is_member(chr(code)))
    return (
        "[" + "".join(_literal(a) + (f"-{_literal(b)}" if a != b else "") for a, b in ranges) + "]"
    )


def _literal(code: int) -> str:
    return re.sub(r"[-&\[\]\\^]", r"\\\g<0>", chr(code))


def _ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted code points without surrogates as (first, last) of each run."""
    found: list[tuple[int, int]] = []
    for code in codes:
        if 0xD800 <= code <= 0xDFFF:
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found
