"""File formats of other programs and their names of weights. Nothing here imports jax."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.formats import bilm, google, huggingface, openai
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, check_vocabulary_size, sibling


@dataclasses.dataclass(frozen=True)
class Format:
    """How another program stores a checkpoint.

    Attributes:
      title: name of the program, for people and certificate.json.
      matches: path -> whether it looks like a checkpoint of this format.
      open: (path, choices) -> the checkpoint; raises UserError.
      tensors: path -> objects with the `dtype` and `shape` of each tensor, by name; raises
        UserError.
    """

    title: str
    matches: Callable[[str], bool]
    open: Callable[[str, Choices], ForeignCheckpoint]
    tensors: Callable[[str], Mapping[str, Any]]


FORMATS = {
    name: Format(title, module.matches, module.open_checkpoint, module.tensors)
    for name, title, module in (
        ("huggingface", "Hugging Face", huggingface),
        ("google", "google-research/bert", google),
        ("openai", "openai/finetune-transformer-lm", openai),
        ("bilm", "bilm-tf", bilm),
    )
}


def format_of(path: str) -> str:
    """Returns "workdir" for a folder of this package, or the name of a row of FORMATS.

    Raises:
      UserError: there is no such path, or it is none of these.
    """
    path = local(path)
    if os.path.isdir(os.path.join(path, "checkpoints")):
        return "workdir"
    if name := next((name for name, row in FORMATS.items() if row.matches(path)), ""):
        return name
    if not os.path.exists(path):
        raise UserError(
            f"{path}: no such file or folder: give a workdir, or a folder of Hugging Face,"
            " google-research/bert, bilm-tf or OpenAI on this machine; nothing is downloaded."
        )
    raise UserError(
        f"{path} is neither a workdir (with checkpoints/), nor a folder of Hugging Face (with"
        f" {huggingface.WEIGHTS}), nor one of google-research/bert (with {google.CONFIG}), of"
        f" openai/finetune-transformer-lm (with {openai.SHAPES}) or of bilm-tf (with"
        f" {bilm.OPTIONS} and *weights.hdf5)."
    )


def open_checkpoint(
    path: str, format: str = "", choices: Choices | None = None
) -> ForeignCheckpoint:
    """Opens a checkpoint of another program and checks the size of its vocabulary.

    Args:
      path: file or folder.
      format: name of a row of FORMATS; empty: the one that matches.
      choices: settings that take precedence over the checkpoint's.

    Raises:
      UserError: it is incomplete, or not a model that this package has.
    """
    path = local(path)
    checkpoint = FORMATS[format or format_of(path)].open(path, choices or Choices())
    name = checkpoint.vocabulary.path or sibling(checkpoint.path, "tokenizer.json")
    pieces, rows = len(checkpoint.tokenizer().pieces), checkpoint.model["vocab_size"]
    notes = check_vocabulary_size(pieces, rows, name)
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, *notes))
