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
from bert_jax.formats.foreign import (
    Choices,
    ForeignCheckpoint,
    check_vocabulary_size,
    is_padded,
    sibling,
)
from bert_jax.formats.hub import local_model
from bert_jax.formats.names import NAMES

FORMATS: dict[str, ModuleType] = {
    "huggingface": huggingface,
    "google": google,
    "openai": openai,
    "bilm": bilm,
}


def format_of(path: str) -> str:
    """Returns "workdir" for a folder of this package, or a key of FORMATS, or raises UserError."""
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
    checkpoint = _with_padded_table(checkpoint)
    name = checkpoint.vocabulary.path or sibling(checkpoint.path, "tokenizer.json")
    pieces, rows = len(checkpoint.tokenizer().pieces), checkpoint.model["vocab_size"]
    notes = check_vocabulary_size(pieces, rows, name)
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, *notes))


def _with_padded_table(checkpoint: ForeignCheckpoint) -> ForeignCheckpoint:
    """Returns a checkpoint whose vocab_size is that of its table, if the table is padded."""
    name, tensors = checkpoint.model["name"], checkpoint.tensors
    table = NAMES[name][checkpoint.format]
    path = f"{name}/embeddings/word_embeddings/embedding"
    wanted = next((row.tensor for row in table.rows if row.path == path), "")
    stored = next((tensor for tensor in tensors if table.current_name(tensor) == wanted), "")
    size = checkpoint.model["vocab_size"]
    shapes = getattr(tensors, "entries", tensors)  # a bundle would read the whole table
    if not stored or not is_padded(size, rows := shapes[stored].shape[0]):
        return checkpoint
    note = f"The configuration has vocab_size={size}, the embedding table {rows} rows."
    model = checkpoint.model | {"vocab_size": rows}
    return dataclasses.replace(checkpoint, model=model, notes=(*checkpoint.notes, note))
