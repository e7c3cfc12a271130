"""File formats of other programs and their names of weights. Nothing here imports jax.

Each module of a format has

    TITLE                             name of the program, for people and certificate.json
    matches(path)                     whether a path looks like a checkpoint of this format
    open_checkpoint(path, choices)    the ForeignCheckpoint; raises UserError
    tensors(path)                     objects with the `dtype` and `shape` of each tensor, by name;
                                      raises UserError
"""

import dataclasses
import os
from types import ModuleType

from bert_jax.config import store
from bert_jax.files.errors import UserError
from bert_jax.formats import bilm, google, huggingface, openai
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, check_vocabulary_size, sibling
from bert_jax.formats.hub import local_model

FORMATS: dict[str, ModuleType] = {
    "huggingface": huggingface,
    "google": google,
    "openai": openai,
    "bilm": bilm,
}


def format_of(path: str) -> str:
    """Returns "workdir" for a folder of this package, or a key of FORMATS.

    Raises:
      UserError: there is no such path, or it is none of these.
    """
    path = local_model(path)
    if os.path.isdir(os.path.join(path, "checkpoints")) or store.is_run(path):
        return "workdir"
    if name := next((name for name, module in FORMATS.items() if module.matches(path)), ""):
        return name
    if not os.path.exists(path):
        raise UserError(
            f"{path}: no such file or folder: give a workdir, or a folder of Hugging Face,"
            " google-research/bert, bilm-tf or OpenAI; for a name of the hub, pip install"
            " 'bert_jax[hub]'."
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
      format: a key of FORMATS; empty: the one that matches.
      choices: settings that take precedence over the checkpoint's.

    Raises:
      UserError: it is incomplete, or not a model that this package has.
    """
    path = local_model(path)
    checkpoint = FORMATS[format or format_of(path)].open_checkpoint(path, choices or Choices())
    name = checkpoint.vocabulary.path or sibling(checkpoint.path, "tokenizer.json")
    pieces, rows = len(checkpoint.tokenizer().pieces), checkpoint.model["vocab_size"]
    notes = check_vocabulary_size(pieces, rows, name)
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, *notes))
