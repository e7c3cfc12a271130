"""Models from and to other programs: in as a `LoadedModel`, out as a folder.

    loaded = open_foreign("weights/bert-base-uncased")    # any format of `bert_jax.formats`
    export(loaded, "huggingface", "exported")             # or "stablehlo", "onnx"

A workdir is opened by `bert_jax.training.workdir.open_model`, which returns the same class.
"""

import importlib.util
import os
import pathlib
from typing import Any

from bert_jax.exchange import huggingface, stablehlo
from bert_jax.exchange.loaded import LoadedModel, as_stored, open_foreign, with_new_parameters
from bert_jax.files.atomic import whole_folder
from bert_jax.files.errors import UserError

__all__ = [
    "LoadedModel",
    "as_stored",
    "check_onnx",
    "check_output_folder",
    "export",
    "open_foreign",
    "with_new_parameters",
]


def _write_onnx(model: LoadedModel, folder: pathlib.Path, **choices: Any) -> dict[str, Any]:
    check_onnx("onnx")
    from bert_jax.exchange.onnx.write import write  # imports onnx

    return write(model, folder, **choices)


# (model, empty folder, choices of the form) -> facts about the export, as JSON values.
FORMS = {"huggingface": huggingface.write, "stablehlo": stablehlo.write, "onnx": _write_onnx}


def check_onnx(*packages: str) -> None:
    """Raises UserError if a package of the extra `onnx` is not installed."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise UserError(
            f"ONNX needs a package, {' and '.join(missing)}: pip install 'bert_jax[onnx]'."
        )


def export(
    model: LoadedModel, form: str, folder: str | os.PathLike, **choices: Any
) -> dict[str, Any]:
    """Writes a model to a new folder, completely or not at all.

    Args:
      model: model of a workdir or of another program.
      form: "huggingface", which transformers loads, "stablehlo", which needs only jax, or "onnx".
      folder: new or empty.
      choices: arguments of `exchange.onnx.write.write`, for "onnx".

    Returns:
      Facts about the export; for "huggingface" the class of transformers, and which parameters
      were left out.

    Raises:
      UserError: `folder` is not empty, or the form cannot express this model.
    """
    if form not in FORMS:
        raise UserError(f"Unknown form {form!r}. Available: {', '.join(FORMS)}.")
    check_output_folder(folder)
    with whole_folder(folder) as temporary:
        return FORMS[form](model, pathlib.Path(temporary), **choices)


def check_output_folder(path: str | os.PathLike) -> None:
    """Raises UserError if `path` is a file or a folder that is not empty."""
    folder = pathlib.Path(path)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{path} exists already: name a new folder, or remove it first.")
