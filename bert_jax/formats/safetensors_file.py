"""Reads and writes safetensors files; bfloat16 too."""

import errno
import os
import pathlib
from collections.abc import Mapping

import ml_dtypes  # noqa: F401  # gives numpy bfloat16
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bert_jax.files.errors import UserError


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a file by name; raises UserError if they cannot be read."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(
            f"{path} cannot be read: {error}; it is corrupt or truncated, get it again."
        ) from None
    except AttributeError as error:
        raise UserError(
            f"{path} has the unsupported dtype {error.name}: get the weights in float32, float16 or"
            " bfloat16."
        ) from None


def write_safetensors(
    path: str | os.PathLike,
    tensors: Mapping[str, np.ndarray],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes tensors, and the metadata of the header; raises OSError if that fails."""
    path = pathlib.Path(path)
    path.touch()  # save_file moves a file that only its owner may read to the path
    mode = path.stat().st_mode
    # For arrays with other strides, save_file would write the bytes in memory order.
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    try:
        save_file(arrays, path, metadata)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error
    path.chmod(mode)
