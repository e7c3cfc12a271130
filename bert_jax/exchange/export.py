"""Writes a model as a folder for other programs."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

from bert_jax.exchange import huggingface, stablehlo
from bert_jax.exchange.loaded import LoadedModel
from bert_jax.files.atomic import whole_folder
from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True)
class Form:
    """A form that models are exported in.

    Attributes:
      title: description for people.
      write: (model, empty folder) -> facts about the export, as JSON values; raises UserError for
        a model that this form cannot express.
    """

    title: str
    write: Callable[[LoadedModel, pathlib.Path], dict[str, Any]]


FORMS = {
    "huggingface": Form("folder that transformers loads", huggingface.write),
    "stablehlo": Form("program that needs only jax", stablehlo.write),
}


def export(model: LoadedModel, form: str, folder: str | os.PathLike) -> dict[str, Any]:
    """Writes a model to a new folder, completely or not at all.

    Args:
      model: from a workdir or from another program.
      form: a key of FORMS.
      folder: new or empty.

    Returns:
      Facts about the export; for "huggingface" the class of transformers, and which parameters
      were left out.

    Raises:
      UserError: `folder` is not empty, or the form cannot express this model.
    """
    check_output_folder(folder)
    with whole_folder(folder) as temporary:
        return write(model, form, temporary)


def write(model: LoadedModel, form: str, folder: str | os.PathLike) -> dict[str, Any]:
    """Writes the files of `export` into an existing empty folder; see there."""
    if form not in FORMS:
        raise UserError(f"Unknown form {form!r}. Available: {', '.join(FORMS)}.")
    return FORMS[form].write(model, pathlib.Path(folder))


def check_output_folder(path: str | os.PathLike) -> None:
    """Raises UserError if `path` is a file or a folder that is not empty."""
    folder = pathlib.Path(path)
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise UserError(f"{path} exists already: name a new folder, or remove it first.")
