"""Files that commands write: checks before the work, JSON lines, arrays. No jax.

JSON lines are written as they come. Arrays are filled on disk, in a folder next to the output, and
packed at the end: memory does not grow with the number of texts, and for a moment the disk holds
everything twice.
"""

import dataclasses
import itertools
import json
import math
import os
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError

# File endings for arrays, for sparse vectors, for objects, and for predictions; "": a file without
# one has JSON lines.
ARRAYS = (".npz", ".safetensors", ".jsonl", ".parquet")
SPARSE = (".npz", ".jsonl")
OBJECTS = (".jsonl", ".parquet", "")
PREDICTIONS = (".jsonl", ".parquet", ".csv", ".tsv", ".json", ".conll", "")
# Parquet rows that are converted at a time.
_CHUNK = 1000


def check_output(path: str, endings: Sequence[str], input_paths: Iterable[str] = ()) -> str:
    """Checks before long work that a file can be written; returns the ending of its name.

    Args:
      path: its path; "" is no file and - the standard output, neither of which has an ending.
      endings: the possible endings, "" if none is needed.
      input_paths: files that it must not be.

    Raises:
      UserError: its folder does not exist, it is a folder or an input, or it has another ending.
    """
    if path in ("", "-"):
        return ""
    if not os.path.isdir(folder := os.path.dirname(path) or "."):
        raise UserError(f"--output={path}: there is no folder {folder}.")
    if os.path.isdir(path):
        raise UserError(f"--output={path} is a folder: name a file in it.")
    for each in input_paths if os.path.exists(path) else ():
        if os.path.samefile(each, path):
            raise UserError(f"--output={path} is the input: name another file.")
    if (ending := os.path.splitext(path)[1].lower()) not in endings:
        *others, last = filter(None, endings)
        raise UserError(
            f"--output={path}: the ending says the form, {', '.join(others)} or {last}."
        )
    return ending


def write_objects(path: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Writes objects as .parquet, or else as lines of JSON with arrays as lists, to the standard
    output for "-"; a file is complete or absent."""
    if path.lower().endswith(".parquet"):
        write_parquet(path, objects)
        return
    lines = (json.dumps(as_lists(fields), ensure_ascii=False) + "\n" for fields in objects)
    if path == "-":
        sys.stdout.writelines(lines)
        return
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(lines)


def write_parquet(path: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Writes a Parquet row for each object, arrays as lists of their type.

    Raises:
      UserError: a field has values of several types.
    """
    import pyarrow as pa  # takes time, and is rarely needed
    from pyarrow import parquet

    def column(values: list[Any]) -> pa.Array:
        first = next((value for value in values if value is not None), None)
        if not isinstance(first, np.ndarray):
            return pa.array(values)
        kind = pa.from_numpy_dtype(first.dtype)
        for _ in range(first.ndim):
            kind = pa.list_(kind)
        return pa.array([None if v is None else v.tolist() for v in values], kind)

    tables, objects = [], iter(objects)
    try:
        while rows := list(itertools.islice(objects, _CHUNK)):
            names = dict.fromkeys(name for row in rows for name in row)
            columns = {str(n): column([row.get(n) for row in rows]) for n in names}
            tables.append(pa.table(columns))
        table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        line = " ".join(str(error).split())[:120]
        raise UserError(
            f"--output={path}: a field has values of several types ({line}): take .jsonl."
        ) from None
    with whole_file(path) as temporary:
        parquet.write_table(table, temporary)


def as_lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """An array of all texts: its shape, with the texts along `axis`, and its type."""

    shape: tuple[int, ...]
    axis: int
    dtype: type[np.generic]


def write_arrays(
    path: str, specs: Mapping[str, ArraySpec], texts: Iterable[Mapping[str, np.ndarray]]
) -> None:
    """Writes arrays of all texts to a .npz or .safetensors file, which is complete or absent.

    Args:
      path: path of the file.
      specs: the arrays.
      texts: each text's part of each array, without the axis of texts; the rest is 0.

    Raises:
      UserError: the disk has no room for them.
    """
    _check_room(path, specs)
    folder = f"{path}.arrays"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    try:
        arrays = {
            name: np.lib.format.open_memmap(f"{folder}/{name}.npy", "w+", spec.dtype, spec.shape)
            for name, spec in specs.items()
        }
        for number, features in enumerate(texts):
            for name, spec in specs.items():
                where = [slice(size) for size in features[name].shape]
                arrays[name][(*where[: spec.axis], number, *where[spec.axis :])] = features[name]
        with whole_file(path) as temporary:
            if path.lower().endswith(".npz"):
                _pack_npz(arrays, temporary)
            else:
                # Importing the formats takes longer than --help may.
                from bert_jax.formats.safetensors_file import write_safetensors

                write_safetensors(temporary, arrays)
    finally:
        shutil.rmtree(folder)


def _check_room(path: str, specs: Mapping[str, ArraySpec]) -> None:
    """Filling a mapped file on a full disk would kill the process without a message."""
    size = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in specs.values())
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    if 2 * size > free:
        raise UserError(
            f"--output={path} needs {2 * size / 1e9:,.1f} GB on its disk while it is written, half"
            f" of it afterwards, and {free / 1e9:,.1f} GB are free: choose fewer --layers, another"
            " --level, or another disk."
        )


def _pack_npz(arrays: Mapping[str, np.memmap], path: str) -> None:
    """Like np.savez, from files; equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            array.flush()
            with (
                open(str(array.filename), "rb") as source,
                archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
