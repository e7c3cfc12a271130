"""The files of GPT's byte-pair vocabulary: two as released, one in our folders.

    encoder_bpe_40000.json + vocab_40000.bpe    of openai/finetune-transformer-lm
    vocab.json + merges.txt                     of a Hugging Face folder
    vocab.gpt                                   ours: {"pieces": [...], "merges": ["t h", ...]}

The two released forms have the same content and give the same bytes of `vocab.gpt`.
"""

import json
import os

from bert_jax.files.errors import UserError

# Pieces and their ids; merges in the order in which they are applied.
FILES = (("encoder_bpe_40000.json", "vocab_40000.bpe"), ("vocab.json", "merges.txt"))
# The piece of unknown characters; the released program gives them id 0 whatever its piece is.
UNKNOWN = "<unk>"


def find_files(path: str) -> tuple[str, str] | None:
    """Returns the two files of a released vocabulary; `path` is their folder, or one of them.

    Returns None if `path` names no such vocabulary; raises UserError if one file is missing.
    """
    is_folder = os.path.isdir(path)
    folder, name = (path, "") if is_folder else os.path.split(path)
    for pair in FILES:
        pieces, merges = (os.path.join(folder, file) for file in pair)
        missing = [file for file in (pieces, merges) if not os.path.isfile(file)]
        if name not in pair and (len(missing) == 2 or not is_folder):
            continue
        if len(missing) == 1:
            other = pair[missing[0] == pieces]
            raise UserError(
                f"GPT's vocabulary has two files, and {missing[0]} is missing: put it beside"
                f" {other}."
            )
        return pieces, merges
    if is_folder:
        raise UserError(
            f"The folder {path} has no vocabulary of GPT: it needs"
            f" {' or '.join(f'{pieces} and {merges}' for pieces, merges in FILES)}."
        )
    return None


def pack(pieces: bytes, merges: bytes, path: str) -> bytes:
    """Returns the bytes of `vocab.gpt` for the contents of the two released files.

    Args:
      pieces: JSON, piece -> id.
      merges: two pieces per line, below a line with the version.
      path: file name for error messages.

    Raises:
      UserError: they are not such files.
    """
    try:
        ids = json.loads(pieces)
        ordered = sorted(ids, key=ids.__getitem__)
        is_complete = [ids[piece] for piece in ordered] == list(range(len(ids)))
    except (ValueError, TypeError, AttributeError, IndexError):
        is_complete, ordered = False, []
    if not is_complete or not ordered:
        raise UserError(
            f"{path} is not a vocabulary of GPT: it must be a JSON object of pieces with the ids 0,"
            " 1, 2 ..."
        )
    try:
        lines = merges.decode().split("\n")[1:-1]
    except UnicodeDecodeError:
        raise UserError(f"The merges beside {path} are not UTF-8 text: get them again.") from None
    content = {"pieces": ordered, "merges": [" ".join(line.split()) for line in lines]}
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def unpack(vocabulary: bytes, path: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns pieces by id and merges in order; raises UserError if it is not a `vocab.gpt`."""
    try:
        content = json.loads(vocabulary)
        pieces = [str(piece) for piece in content["pieces"]]
        merges = [(first, second) for first, second in map(str.split, content["merges"])]
    except (ValueError, TypeError, KeyError):
        raise UserError(
            f"{path} is not a byte-pair vocabulary of GPT: it needs pieces, and merges of two"
            " pieces each."
        ) from None
    if pieces[:1] != [UNKNOWN]:
        raise UserError(
            f"{path} is not a vocabulary of GPT: the piece with id 0 must be {UNKNOWN}, the"
            f" unknown one, and it is {'missing' if not pieces else repr(pieces[0])}."
        )
    return pieces, merges
