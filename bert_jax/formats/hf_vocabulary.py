"""The vocabulary of a folder of Hugging Face: a list of pieces, whatever file has it."""

import os

from bert_jax.files.errors import UserError
from bert_jax.formats import foreign
from bert_jax.formats.foreign import sibling
from bert_jax.text.tokenizers import Vocabulary


def wordpiece_vocabulary(path: str, chosen: str) -> Vocabulary:
    """Returns the WordPiece vocabulary; its path is empty if it comes from tokenizer.json.

    Args:
      path: the folder, or a file in it.
      chosen: path of a vocab.txt that is used instead; empty: none.

    Raises:
      UserError: there is no vocabulary, or it is not one of WordPiece.
    """
    name = chosen or sibling(path, "vocab.txt")
    if chosen or os.path.isfile(name):
        return foreign.read_vocabulary(name)
    name = sibling(path, "tokenizer.json")
    if not os.path.isfile(name):
        raise UserError(
            f"{os.path.dirname(name)} has neither vocab.txt nor tokenizer.json: name a"
            " vocabulary with --vocab=PATH."
        )
    tokenizer = foreign.read_json_object(name)
    model = tokenizer.get("model") or {}
    if model.get("type") != "WordPiece":
        raise UserError(
            f"{name} has a tokenizer of type {model.get('type')!r}: only 'WordPiece' is supported;"
            " name a vocab.txt with --vocab=PATH."
        )
    ids = dict(model["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise UserError(
            f"{name} does not number its pieces 0, 1, 2 ...: name a vocab.txt with --vocab=PATH."
        )
    return foreign.text_vocabulary("".join(piece + "\n" for piece in pieces).encode())


def is_lowercase(path: str, vocabulary: Vocabulary) -> bool:
    """Returns the setting in the files of the tokenizer, or else that of the vocabulary."""
    name = sibling(path, "tokenizer_config.json")
    value = None
    if os.path.isfile(name):
        value = foreign.read_json_object(name).get("do_lower_case")
    name = sibling(path, "tokenizer.json")
    if value is None and os.path.isfile(name):
        value = (foreign.read_json_object(name).get("normalizer") or {}).get("lowercase")
    return value if isinstance(value, bool) else foreign.is_lowercase(vocabulary.content)
