"""Tokenizers of this package as a tokenizer.json, for the `tokenizers` library and transformers.

The BERT components of that library differ from google-research/bert in several ways (private-use
characters, a block of ideographs, words of 101 to 200 characters, the final sigma, the version of
Unicode). The file therefore spells out every rule with the sets of characters that our tokenizer
uses, so that the ids are ours wherever the file is read. Only lowercasing, decomposition and, for
SentencePiece, normalization are the library's.
"""

import base64
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from sentencepiece import sentencepiece_model_pb2 as proto

from bert_jax.files.errors import UserError
from bert_jax.formats.hf_tokenizer_settings import ROLES
from bert_jax.text.sentencepiece_tokenizer import SPACE, SentencePieceTokenizer
from bert_jax.text.tokenization import SPACES, SPECIAL_TOKENS, Tokenizer, is_cjk, is_punctuation
from bert_jax.text.wordpiece import WordPieceTokenizer

Json = dict[str, Any]

# The message of a .model file (created at import, so unknown to type checkers).
_Model: Any = getattr(proto, "ModelProto")  # noqa: B009

_SIGMA, _FINAL_SIGMA = "\u03a3", "\u03c2"
# The largest number of characters between a final sigma and the letter before it.
_MAX_BETWEEN = 30


def tokenizer_json(tokenizer: Tokenizer, vocabulary: bytes) -> Json:
    """Returns the content of tokenizer.json: text -> [CLS] ids [SEP], or a pair with token types.

    Args:
      tokenizer: tokenizer of this package.
      vocabulary: the bytes of its vocabulary file.

    Raises:
      UserError: for a tokenizer, or a kind of SentencePiece model, that the library does not have.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        parts = _sentencepiece(tokenizer, vocabulary)
    elif isinstance(tokenizer, WordPieceTokenizer):
        parts = _wordpiece(tokenizer)
    else:
        raise UserError(f"There is no tokenizer.json for a {type(tokenizer).__name__}.")
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # Recognized in text as by `encode(special_tokens=True)`.
        "added_tokens": [
            {"id": i, "content": tokenizer.pieces[i], **rules, "special": True}
            for i in sorted(_special_ids(tokenizer))
        ],
        "post_processor": _template(tokenizer),
        **parts,
    }


def tokenizer_config(tokenizer: Tokenizer, max_length: int) -> Json:
    """Returns the content of tokenizer_config.json, which makes transformers use tokenizer.json.

    `BertTokenizer` would replace our rules with the library's BERT components.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": tokenizer.lowercase,
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **dict(zip(ROLES, _special_pieces(tokenizer), strict=True)),
    }


def _special_ids(tokenizer: Tokenizer) -> list[int]:
    return [getattr(tokenizer, role.replace("_token", "_id")) for role in ROLES]


def _special_pieces(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.pieces[index] for index in _special_ids(tokenizer)]


def _template(tokenizer: Tokenizer) -> Json:
    """Returns [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with type 1 from B on.

    Between two texts, [SEP] stands `num_separators` times.
    """
    _, _, cls, sep, _ = _special_pieces(tokenizer)

    def special(name: str, type_id: int) -> Json:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def sequence(name: str, type_id: int) -> Json:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [special(cls, 0), sequence("A", 0), special(sep, 0)]
    more = [special(sep, 0)] * (tokenizer.num_separators - 1)
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *more, sequence("B", 1), special(sep, 1)],
        "special_tokens": {
            cls: {"id": cls, "ids": [tokenizer.cls_id], "tokens": [cls]},
            sep: {"id": sep, "ids": [tokenizer.sep_id], "tokens": [sep]},
        },
    }


def _wordpiece(tokenizer: WordPieceTokenizer) -> Json:
    """Returns the steps of `WordRules.split`, then the longest pieces from the left."""
    clean = [
        _replace(_regex(SPACES.match), " "),
        _replace(_regex(_is_deleted), ""),
    ]
    vowel = "\U00011938"  # the one decomposition that the library (0.23) lacks
    rules = tokenizer.rules
    strip = [
        _replace(vowel, unicodedata.normalize("NFD", vowel)),
        {"type": "NFD"},
        _replace(_regex(lambda character: unicodedata.category(character) == "Mn"), ""),
    ]
    return {
        "normalizer": _sequence(
            [
                *clean,
                *(_lower() if rules.lowercase else []),
                *(strip if rules.strips_accents else []),
            ]
        ),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                _split(" +", "Removed"),
                _split(
                    _regex(_is_isolated if rules.split_ideographs else is_punctuation), "Isolated"
                ),
            ],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": SPECIAL_TOKENS[1],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.max_word_length,
            "vocab": {piece: index for index, piece in enumerate(tokenizer.pieces)},
        },
    }


def _sentencepiece(tokenizer: SentencePieceTokenizer, vocabulary: bytes) -> Json:
    """Returns our normalization, the model's, the mark for spaces, then the model's pieces."""
    model = _Model.FromString(vocabulary)
    spec, kind = model.normalizer_spec, model.trainer_spec
    if not (spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces):
        raise UserError(
            "A SentencePiece model without add_dummy_prefix, remove_extra_whitespaces and"
            " escape_whitespaces has no tokenizer.json: train it with these options."
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
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [words, _split_special_tokens(tokenizer)],
        },
        "decoder": words,
        "model": (_unigram if kind.model_type == kind.UNIGRAM else _bpe)(model, tokenizer.unk_id),
    }


def _split_special_tokens(tokenizer: Tokenizer) -> Json:
    """Splits special tokens that are part of a word after their first character: they are text."""
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
    """Returns a model that merges two pieces if they form a piece, highest score first."""
    kind = model.trainer_spec
    if kind.model_type != kind.BPE:
        raise UserError("Only SentencePiece models of type unigram or bpe have a tokenizer.json.")
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
    """Returns `str.lower`. The library's goes by character, so final sigmas are replaced first.

    A sigma is final if a cased letter stands before it and none after it, not counting accents and
    apostrophes in between. Their number is limited, since an unlimited lookbehind takes time in
    proportion to all the text before.
    """
    cased = _regex(_is_cased)
    between = _regex(_is_case_ignorable)
    final = f"(?<={cased}{between}{{0,{_MAX_BETWEEN}}}){_SIGMA}(?!{between}*{cased})"
    return [_replace(final, _FINAL_SIGMA), {"type": "Lowercase"}]


# ------------------------------------------------------------------ sets of characters


def _is_deleted(character: str) -> bool:
    """Returns whether the tokenizer removes the character from text."""
    is_control = unicodedata.category(character) in ("Cc", "Cf") and not SPACES.match(character)
    return is_control or character in "\0\ufffd"


def _is_isolated(character: str) -> bool:
    return is_punctuation(character) or is_cjk(character)


def _is_cased(character: str) -> bool:
    """Returns whether `str.lower` takes the character before a sigma for a letter of the word."""
    return (character + _SIGMA).lower()[-1] == _FINAL_SIGMA


def _is_case_ignorable(character: str) -> bool:
    """Returns whether `str.lower` ignores the character between a letter and a sigma."""
    return ("A" + character + _SIGMA).lower()[-1] == _FINAL_SIGMA and not _is_cased(character)


@functools.cache
def _regex(is_member: Callable[[str], Any]) -> str:
    """Returns a regular expression for one character for which `is_member` is true."""
    codes = [*range(0xD800), *range(0xE000, 0x110000)]  # without surrogates
    members = [code for code in codes if is_member(chr(code))]
    parts = []
    for _, run in itertools.groupby(enumerate(members), lambda item: item[1] - item[0]):
        (_, first), *_, (_, last) = [*run] * 2
        ends = sorted({first, last})
        parts.append("-".join(re.sub(r"[-&\[\]\\^]", r"\\\g<0>", chr(x)) for x in ends))
    return f"[{''.join(parts)}]"
