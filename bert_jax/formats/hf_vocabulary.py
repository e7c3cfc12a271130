"""The vocabulary of a Hugging Face folder as one file of this package.

    vocab.txt, or a tokenizer.json of WordPiece      a vocab.txt
    vocab.model, sentencepiece.bpe.model             a SentencePiece model
    a tokenizer.json of Unigram                      the same, made of its pieces
    a tokenizer.json of byte-level BPE               itself
    vocab.json and merges.txt                        a tokenizer.json

XLM-RoBERTa's ids are not those of its SentencePiece model: the four special tokens of fairseq come
first, all pieces one id later, and <mask> last. The model that is made has its pieces in that
order.
"""

import base64
import json
import os
from collections.abc import Sequence
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import (
    Choices,
    is_lowercase,
    read_json_object,
    sibling,
    text_vocabulary,
)
from bert_jax.formats.hf_tokenizer_settings import TokenizerSettings, read_settings
from bert_jax.text.byte_level_tokenizer import component_steps, find_special, lowercases
from bert_jax.text.ruled_wordpiece import (
    ordered_pieces,
    read_components,
    ruled_vocabulary,
)
from bert_jax.text.tokenization import SPECIAL_TOKENS, WordRules
from bert_jax.text.tokenizers import Vocabulary, read_vocabulary

Json = dict[str, Any]

# Of fairseq's vocabularies, by id; <mask> is the last piece.
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_MASK = "<mask>"
_ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", _MASK)
# Maximum lengths of a word in transformers and in the released code. Words between them are rare,
# so a vocabulary with BERT's other rules stays a vocab.txt, with the second.
_USUAL_LENGTHS = (100, 200)


def folder_vocabulary(path: str, choices: Choices, frames: bool = True) -> tuple[Vocabulary, bool]:
    """Returns the vocabulary of a Hugging Face folder, and whether text is lower cased.

    Args:
      path: the folder, or a file in it.
      choices: settings that take precedence.
      frames: whether the model reads texts framed by [CLS] and [SEP].

    Raises:
      UserError: there is none that this package has, or transformers computes different ids.
    """
    settings = read_settings(path, frames)
    if chosen := choices.vocab:
        if chosen.endswith((".json", ".model")):
            return read_vocabulary(chosen), bool(choices.lowercase)
        return _wordpiece(read_vocabulary(chosen, ".txt"), settings, {}, choices)
    # transformers prefers tokenizer.json.
    names = ("vocab.txt", "vocab.model", "tokenizer.json", "sentencepiece.bpe.model", "merges.txt")
    files = ((name, sibling(path, name)) for name in names)
    name, file = next(((name, file) for name, file in files if os.path.isfile(file)), ("", ""))
    match name:
        case "vocab.txt":
            vocabulary = read_vocabulary(file, ".txt")
            if os.path.isfile(sibling(path, "tokenizer.json")):
                return _beside_tokenizer_json(vocabulary, settings, choices)
            return _wordpiece(vocabulary, settings, {}, choices)
        case "vocab.model":
            lowercase = bool(settings.config.get("do_lower_case"))
            return read_vocabulary(file), _chosen(choices, lowercase)
        case "sentencepiece.bpe.model":
            settings.check("Unigram", _ROBERTA, {})
            lowercase = _chosen(choices, settings.lowercases)
            return _fairseq_model(read_vocabulary(file)), lowercase
        case "tokenizer.json":
            return _from_tokenizer_json(file, settings, choices)
        case "merges.txt":
            settings.check("BPE", _ROBERTA, {})
            prefix = bool(settings.config.get("add_prefix_space"))
            vocabulary = _from_two_files(sibling(path, "vocab.json"), file, prefix)
            return vocabulary, _chosen(choices, False)
    raise UserError(
        f"{sibling(path, '')} has neither vocab.txt nor tokenizer.json, nor a SentencePiece model:"
        " name a vocabulary with --vocab=PATH."
    )


def _chosen(choices: Choices, lowercase: bool) -> bool:
    return lowercase if choices.lowercase is None else choices.lowercase


def _from_tokenizer_json(
    file: str, settings: TokenizerSettings, choices: Choices
) -> tuple[Vocabulary, bool]:
    tokenizer = read_json_object(file)
    model = tokenizer.get("model") or {}
    is_old = "continuing_subword_prefix" in model and "merges" not in model  # without a type
    match model.get("type", "WordPiece" if is_old else None):
        case "WordPiece":
            pieces = ordered_pieces(read_components(tokenizer, file).ids, file)
            content = "".join(piece + "\n" for piece in pieces).encode()
            return _wordpiece(text_vocabulary(content), settings, tokenizer, choices)
        case "BPE":
            _check_byte_level(tokenizer, file, settings)
            return read_vocabulary(file), _chosen(choices, lowercases(tokenizer))
        case "Unigram":
            pieces = {piece for piece, _ in model["vocab"]}
            settings.check("Unigram", find_special(dict.fromkeys(pieces, 0)), tokenizer)
            return _unigram_model(tokenizer, file), _chosen(choices, settings.lowercases)
        case kind:
            raise UserError(
                f"{file} has a tokenizer of type {kind!r}: only 'WordPiece', 'BPE' and 'Unigram'"
                " are supported; name a vocabulary with --vocab=PATH."
            )


def _beside_tokenizer_json(
    vocabulary: Vocabulary, settings: TokenizerSettings, choices: Choices
) -> tuple[Vocabulary, bool]:
    """Returns a vocab.txt with the rules in the tokenizer.json beside it."""
    file = sibling(vocabulary.path, "tokenizer.json")
    tokenizer = read_json_object(file)
    if (kind := (tokenizer.get("model") or {}).get("type", "WordPiece")) != "WordPiece":
        raise UserError(
            f"{file} has a tokenizer of type {kind!r}, and vocab.txt is one of WordPiece: remove"
            " the wrong file."
        )
    found = read_components(tokenizer, file)
    ours = {piece: number for number, piece in enumerate(_lines(vocabulary))}
    theirs = {piece.strip(): number for piece, number in found.ids.items()}
    if ours != theirs:
        piece, _ = min(ours.items() ^ theirs.items(), key=lambda item: item[1])
        raise UserError(
            f"{vocabulary.path} and {file} have other pieces, such as {piece!r}: remove the wrong"
            " file."
        )
    return _wordpiece(vocabulary, settings, tokenizer, choices)


def _wordpiece(
    vocabulary: Vocabulary, settings: TokenizerSettings, tokenizer: Json, choices: Choices
) -> tuple[Vocabulary, bool]:
    """Returns a vocabulary of lines, or a tokenizer.json if its rules are not BERT's.

    `tokenizer` is the content of tokenizer.json; {}: there is none.
    """
    found = None
    if tokenizer:
        found = read_components(tokenizer, sibling(settings.path, "tokenizer.json"))
    if not choices.vocab:
        settings.check("WordPiece", SPECIAL_TOKENS, tokenizer)
    switches = settings.switches(found, choices.lowercase)
    if switches["lowercase"] is None:
        switches["lowercase"] = is_lowercase(vocabulary.content)
    if settings.lowercases and choices.lowercase is None and not switches["lowercase"]:
        # Text is lower cased before the tokenizer, which still keeps accents.
        switches |= {"lowercase": True, "strip_accents": bool(switches["strip_accents"])}
    rules = WordRules(**switches)
    length = found.max_word_length if found else _USUAL_LENGTHS[0]
    is_default = rules.strips_accents == rules.lowercase and rules.split_ideographs
    if is_default and length in _USUAL_LENGTHS:
        return vocabulary, rules.lowercase
    pieces = _lines(vocabulary)
    if len(set(pieces)) < len(pieces):
        raise UserError(
            f"{vocabulary.path} has a piece twice, which its settings other than BERT's"
            " (strip_accents, tokenize_chinese_chars, the maximum length of a word) do not allow."
        )
    content = ruled_vocabulary(pieces, rules, length)
    return Vocabulary("", "tokenizer.json", ".json", content), rules.lowercase


def _lines(vocabulary: Vocabulary) -> list[str]:
    text = vocabulary.content.decode("utf-8", "replace").removesuffix("\n")
    return [line.strip() for line in text.split("\n")]


def _check_byte_level(tokenizer: Json, file: str, settings: TokenizerSettings) -> None:
    """Refuses settings of tokenizer_config.json that contradict a byte-level tokenizer.json."""
    ids = dict(tokenizer["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    settings.check("BPE", find_special(ids), tokenizer)
    if settings.is_generic or not settings.name:
        return
    prefix = bool((tokenizer.get("pre_tokenizer") or {}).get("add_prefix_space"))
    if (value := bool(settings.config.get("add_prefix_space"))) != prefix:
        raise UserError(
            f"{file} has add_prefix_space={prefix}, and {settings.path} {value}, which"
            f" transformers' {settings.name} follows: correct the wrong one."
        )
    if tokenizer.get("normalizer"):
        raise UserError(
            f"{file} has a normalizer, which transformers' {settings.name} does not read: name the"
            f" class PreTrainedTokenizerFast in {settings.path}."
        )


def _from_two_files(pieces: str, merges: str, prefix: bool) -> Vocabulary:
    """Returns the tokenizer of RoBERTa's vocab.json and merges.txt as a tokenizer.json."""
    vocab = read_json_object(pieces)
    with open(merges, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#version")]
    special = [piece for piece in find_special(vocab) if piece]
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": vocab[piece], "content": piece, **rules, "special": True}
        | {"lstrip": piece == _MASK}
        for piece in sorted(special, key=vocab.__getitem__)
    ]
    _, _, cls, sep, _ = find_special(vocab)
    options = {"add_prefix_space": prefix, "trim_offsets": True}
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **options, "use_regex": True},
        "post_processor": {
            **{"type": "RobertaProcessing", "sep": [sep, vocab.get(sep)]},
            **{"cls": [cls, vocab.get(cls)], "trim_offsets": True, "add_prefix_space": False},
        },
        "decoder": {"type": "ByteLevel", **options, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [x for x in lines if x]},
    }
    text = json.dumps(content, ensure_ascii=False) + "\n"
    return Vocabulary("", "tokenizer.json", ".json", text.encode())


# ------------------------------------------------------------------ SentencePiece models


def _fairseq_model(vocabulary: Vocabulary) -> Vocabulary:
    """Returns the SentencePiece model of an XLM-RoBERTa with the ids of fairseq."""
    from bert_jax.text.sentencepiece_tokenizer import parse_model

    model = parse_model(vocabulary.content, vocabulary.path)
    names = ("<unk>", "<s>", "</s>")
    if tuple(piece.piece for piece in model.pieces[:3]) != names:
        raise UserError(
            f"{vocabulary.path} does not begin with the pieces {' '.join(names)}, so it is not the"
            " model of an XLM-RoBERTa: name a vocabulary with --vocab=PATH."
        )
    pieces = [(name, 0.0) for name in _FAIRSEQ]
    pieces += [(piece.piece, piece.score) for piece in model.pieces[3:]]
    charsmap = model.normalizer_spec.precompiled_charsmap
    return _make_model([*pieces, (_MASK, 0.0)], 3, charsmap)


def _unigram_model(tokenizer: Json, file: str) -> Vocabulary:
    """Returns the SentencePiece model that gives the same ids as a Unigram tokenizer.json."""
    model = tokenizer["model"]
    if model.get("byte_fallback"):
        raise UserError(f"{file} has byte_fallback=True: only False is supported.")
    pieces = [(piece, score) for piece, score in model["vocab"]]
    known = {piece for piece, _ in pieces}
    added = tokenizer.get("added_tokens") or ()
    special = find_special(dict.fromkeys([*known, *(token["content"] for token in added)], 0))
    if more := [token["content"] for token in added if token["content"] not in special]:
        raise UserError(
            f"{file} has added tokens ({', '.join(map(repr, more[:8]))}), which are found in text"
            " before it is split into pieces: only the special tokens are supported."
        )
    for token in added:
        if token["content"] not in known:
            if token["id"] != len(pieces):
                raise UserError(f"{file} does not number its pieces 0, 1, 2 ...")
            pieces.append((token["content"], 0.0))
    return _make_model(pieces, model["unk_id"], _charsmap(tokenizer, file))


def _charsmap(tokenizer: Json, file: str) -> bytes:
    """Returns the normalization table of a tokenizer.json, which has SentencePiece's steps only."""
    charsmap, joins_spaces = b"", False
    for step in component_steps(tokenizer.get("normalizer"), "normalizers"):
        if step["type"] == "Precompiled" and not charsmap:
            charsmap = base64.b64decode(step["precompiled_charsmap"])
        elif step["type"] == "Replace" and step.get("pattern") == {"Regex": " {2,}"}:
            joins_spaces = True
        elif step["type"] != "Strip":  # SentencePiece removes the spaces at both ends, too
            raise _step_error(file, "normalizer", step)
    if not charsmap:
        raise UserError(
            f"{file} has no normalizer of type 'Precompiled', which SentencePiece models have:"
            " name the model with --vocab=PATH."
        )
    for step in component_steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        prefix = step.get("prepend_scheme", "always"), step.get("add_prefix_space", True)
        is_space = step["type"] == "Metaspace" and step.get("replacement") == "\u2581"
        joins_spaces = joins_spaces or step["type"] == "WhitespaceSplit"
        if step["type"] != "WhitespaceSplit" and not (is_space and prefix == ("always", True)):
            raise _step_error(file, "pre_tokenizer", step)
    if not joins_spaces:
        raise UserError(
            f"{file} has neither a pre_tokenizer 'WhitespaceSplit' nor a normalizer that joins"
            " spaces, as SentencePiece models do: name the model with --vocab=PATH."
        )
    return charsmap


def _step_error(file: str, component: str, step: Json) -> UserError:
    return UserError(
        f"{file} has a {component} {step['type']!r} that SentencePiece models do not have: name"
        " the model with --vocab=PATH."
    )


def _make_model(pieces: Sequence[tuple[str, float]], unk_id: int, charsmap: bytes) -> Vocabulary:
    from bert_jax.text.sentencepiece_tokenizer import make_unigram_model

    content = make_unigram_model(pieces, unk_id, charsmap)
    return Vocabulary("", "vocab.model", ".model", content)
