"""Files of features: a JSON object a line, or arrays in .npz or .safetensors.

JSON lines are written as they come. Arrays are filled on disk, in a folder next to the output, and
packed at the end: memory does not grow with the number of texts, and for a moment the disk holds
everything twice.
"""

import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError

ENDINGS = (".npz", ".safetensors", ".jsonl")


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """An array of all texts: its shape, with the texts along `axis`, and its type."""

    shape: tuple[int, ...]
    axis: int
    dtype: type[np.generic]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def check_ending(path: str) -> str:
    """The ending of a file name.

    Raises:
      UserError: it is not in ENDINGS, or the package that writes it is missing.
    """
    ending = os.path.splitext(path)[1]
    if ending not in ENDINGS:
        raise UserError(
            f"--output={path}: the ending says the form, {', '.join(ENDINGS[:-1])} or"
            f" {ENDINGS[-1]}."
        )
    if ending == ".safetensors" and importlib.util.find_spec("safetensors") is None:
        raise UserError(
            f"--output={path} needs the package safetensors: pip install safetensors, or give a"
            " name that ends in .npz or .jsonl."
        )
    return ending


class JsonLines:
    """Features as text, in the order in which they are written."""

    def __init__(self, file: IO[str]):
        self._file = file

    def write(self, features: Mapping[str, Any]) -> None:
        """Writes a text's features, arrays as lists."""
        lists = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in features.items()
        }
        self._file.write(json.dumps(lists, ensure_ascii=False) + "\n")


class Arrays:
    """Arrays of all texts, filled in any order; what no text fills is 0."""

    def __init__(self, specs: Mapping[str, ArraySpec], folder: str):
        self._specs = specs
        self.arrays = {
            name: np.lib.format.open_memmap(
                os.path.join(folder, f"{name}.npy"), "w+", spec.dtype, spec.shape
            )
            for name, spec in specs.items()
        }

    def place(self, number: int, features: Mapping[str, np.ndarray]) -> None:
        """Stores a text's features, each array without its axis of texts."""
        for name, spec in self._specs.items():
            where = [slice(size) for size in features[name].shape]
            self.arrays[name][(*where[: spec.axis], number, *where[spec.axis :])] = features[name]


@contextlib.contextmanager
def open_json_lines(path: str) -> Iterator[JsonLines]:
    """Opens a file of JSON lines; it is moved to `path` if the block ends without an error."""
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield JsonLines(file)


@contextlib.contextmanager
def open_arrays(path: str, specs: Mapping[str, ArraySpec]) -> Iterator[Arrays]:
    """Opens arrays to fill; their file is moved to `path` if the block ends without an error.

    Raises:
      UserError: if the disk has no room for them.
    """
    _check_room(path, sum(spec.nbytes for spec in specs.values()))
    folder = f"{path}.arrays"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    try:
        arrays = Arrays(specs, folder)
        yield arrays
        with whole_file(path) as temporary:
            if path.endswith(".npz"):
                _pack_npz(arrays.arrays, temporary)
            else:
                from safetensors.numpy import save_file

                save_file(dict(arrays.arrays), temporary)
    finally:
        shutil.rmtree(folder)


def _check_room(path: str, size: int) -> None:
    """Filling a mapped file on a full disk would kill the process without a message."""
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    if 2 * size > free:
        raise UserError(
            f"--output={path} needs {2 * size / 1e9:,.1f} GB on its disk while it is written, half"
            f" of it afterwards, and {free / 1e9:,.1f} GB are free: choose fewer --layers, another"
            " --level, or another disk."
        )


def _pack_npz(arrays: Mapping[str, np.memmap], path: str) -> None:
    """np.savez, from files; equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            array.flush()
            with (
                open(str(array.filename), "rb") as source,
                archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
