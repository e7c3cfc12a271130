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
    is_lowercase,
    read_json_object,
    read_vocabulary,
    sibling,
    text_vocabulary,
)
from bert_jax.text import tokenizers
from bert_jax.text.byte_level_tokenizer import find_special
from bert_jax.text.tokenizers import Vocabulary

Json = dict[str, Any]

# Of fairseq's vocabularies, by id; <mask> is the last piece.
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_MASK = "<mask>"


def folder_vocabulary(path: str, chosen: str) -> Vocabulary:
    """Returns the vocabulary of a Hugging Face folder.

    Args:
      path: the folder, or a file in it.
      chosen: path of a vocabulary that is used instead; empty: none.

    Raises:
      UserError: there is none, or it is of a kind that this package lacks.
    """
    if chosen:
        is_text = os.path.splitext(chosen)[1] not in (".json", ".model")
        return read_vocabulary(chosen) if is_text else tokenizers.read_vocabulary(chosen)
    names = ("vocab.txt", "vocab.model", "sentencepiece.bpe.model", "tokenizer.json", "merges.txt")
    files = ((name, sibling(path, name)) for name in names)
    name, file = next(((name, file) for name, file in files if os.path.isfile(file)), ("", ""))
    match name:
        case "vocab.txt":
            return read_vocabulary(file)
        case "vocab.model":
            return tokenizers.read_vocabulary(file)
        case "sentencepiece.bpe.model":
            return _fairseq_model(tokenizers.read_vocabulary(file))
        case "tokenizer.json":
            return _from_tokenizer_json(file)
        case "merges.txt":
            return _from_two_files(sibling(path, "vocab.json"), file)
    raise UserError(
        f"{sibling(path, '')} has neither vocab.txt nor tokenizer.json, nor a SentencePiece model:"
        " name a vocabulary with --vocab=PATH."
    )


def reads_lowercase(path: str, vocabulary: Vocabulary) -> bool:
    """Returns the setting in the tokenizer files of a folder, or else that of the vocabulary."""
    if vocabulary.kind == ".json":
        return False
    value = None
    if os.path.isfile(name := sibling(path, "tokenizer_config.json")):
        value = read_json_object(name).get("do_lower_case")
    if value is None and os.path.isfile(name := sibling(path, "tokenizer.json")):
        value = (read_json_object(name).get("normalizer") or {}).get("lowercase")
    if isinstance(value, bool):
        return value
    return vocabulary.kind == ".txt" and is_lowercase(vocabulary.content)


def _from_tokenizer_json(file: str) -> Vocabulary:
    tokenizer = read_json_object(file)
    match (tokenizer.get("model") or {}).get("type"):
        case "WordPiece":
            pieces = "".join(piece + "\n" for piece in _pieces(tokenizer, file))
            return text_vocabulary(pieces.encode())
        case "BPE":
            return tokenizers.read_vocabulary(file)
        case "Unigram":
            return _unigram_model(tokenizer, file)
        case kind:
            raise UserError(
                f"{file} has a tokenizer of type {kind!r}: only 'WordPiece', 'BPE' and 'Unigram'"
                " are supported; name a vocabulary with --vocab=PATH."
            )


def _pieces(tokenizer: Json, file: str) -> list[str]:
    """Returns the pieces of a WordPiece tokenizer, its added tokens included, by id."""
    ids = dict(tokenizer["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise UserError(
            f"{file} does not number its pieces 0, 1, 2 ...: name a vocab.txt with --vocab=PATH."
        )
    return pieces


def _from_two_files(pieces: str, merges: str) -> Vocabulary:
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
    options = {"add_prefix_space": False, "trim_offsets": True}
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **options, "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [sep, vocab.get(sep)],
            "cls": [cls, vocab.get(cls)],
            "trim_offsets": True,
            "add_prefix_space": False,
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
    pieces = [(piece.piece, piece.score) for piece in model.pieces[3:]]
    fairseq = [(name, 0.0) for name in _FAIRSEQ]
    charsmap = model.normalizer_spec.precompiled_charsmap
    return _make_model([*fairseq, *pieces, (_MASK, 0.0)], 3, charsmap)


def _unigram_model(tokenizer: Json, file: str) -> Vocabulary:
    """Returns the SentencePiece model that gives the same ids as a Unigram tokenizer.json."""
    model = tokenizer["model"]
    if model.get("byte_fallback"):
        raise UserError(f"{file} has byte_fallback=True: only False is supported.")
    pieces = [(piece, score) for piece, score in model["vocab"]]
    known = {piece for piece, _ in pieces}
    for token in tokenizer.get("added_tokens") or ():
        if token["content"] not in known:
            if token["id"] != len(pieces):
                raise UserError(f"{file} does not number its pieces 0, 1, 2 ...")
            pieces.append((token["content"], 0.0))
    return _make_model(pieces, model["unk_id"], _charsmap(tokenizer, file))


def _charsmap(tokenizer: Json, file: str) -> bytes:
    """Returns the normalization table of a tokenizer.json with SentencePiece's steps.

    Raises:
      UserError: it has other steps.
    """
    normalizers = _steps(tokenizer.get("normalizer"), "normalizers")
    spaces = {"Replace": {"pattern": {"Regex": " {2,}"}}}
    charsmap = b""
    for step in normalizers:
        if step["type"] == "Precompiled" and not charsmap:
            charsmap = base64.b64decode(step["precompiled_charsmap"])
        elif step.get("pattern") != spaces.get(step["type"], {}).get("pattern"):
            raise _step_error(file, "normalizer", step)
    if not charsmap:
        raise UserError(
            f"{file} has no normalizer of type 'Precompiled', which SentencePiece models have:"
            " name the model with --vocab=PATH."
        )
    for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        prefix = step.get("prepend_scheme", "always"), step.get("add_prefix_space", True)
        is_space = step["type"] == "Metaspace" and step.get("replacement") == "\u2581"
        if step["type"] != "WhitespaceSplit" and not (is_space and prefix == ("always", True)):
            raise _step_error(file, "pre_tokenizer", step)
    return charsmap


def _steps(component: Json | None, name: str) -> list[Json]:
    """Returns the steps of a component of a tokenizer.json, which may be a sequence."""
    if not component:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for part in component[name] for step in _steps(part, name)]


def _step_error(file: str, component: str, step: Json) -> UserError:
    return UserError(
        f"{file} has a {component} {step['type']!r} that SentencePiece models do not have: name"
        " the model with --vocab=PATH."
    )


def _make_model(pieces: Sequence[tuple[str, float]], unk_id: int, charsmap: bytes) -> Vocabulary:
    from bert_jax.text.sentencepiece_tokenizer import make_unigram_model

    content = make_unigram_model(pieces, unk_id, charsmap)
    return Vocabulary("", "vocab.model", ".model", content)
