"""Reads and writes safetensors files: the length of a header, the JSON header, the tensors.

    8 bytes | {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...} | data

Tensors are mapped into memory and read when they are used. bfloat16 is supported, unlike in the
numpy interface of the package `safetensors`. The format has no checksums.
"""

import json
import os
import struct

import ml_dtypes
import numpy as np

from bert_jax.files.errors import UserError

_DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_MAX_HEADER = 100_000_000


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a file by name.

    Raises:
      UserError: the file is corrupt, truncated, or has tensors of an unsupported dtype.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
        if length > min(size - 8, _MAX_HEADER):
            raise UserError(
                f"{path} is not a safetensors file, or truncated: it has {size:,} bytes."
            )
        header = file.read(length)
    tensors, unsupported = {}, ""
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        end = 8 + length + max((e["data_offsets"][1] for e in entries.values()), default=0)
        if end != size:
            raise UserError(f"its tensors end at byte {end:,} and the file at byte {size:,}")
        data = np.memmap(path, np.uint8, "r", offset=0)[8 + length :]
        for name, entry in entries.items():
            if entry["dtype"] not in _DTYPES:
                unsupported = f"{name} has the unsupported dtype {entry['dtype']}"
                continue
            start, end = entry["data_offsets"]
            array = data[start:end].view(_DTYPES[entry["dtype"]])
            tensors[name] = array.reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path} cannot be read: {error}; it is corrupt or truncated, get it again."
        ) from None
    if unsupported:
        raise UserError(f"{path}: {unsupported}: get the weights in float32, float16 or bfloat16.")
    return tensors


def write_safetensors(path: str | os.PathLike, tensors: dict[str, np.ndarray]) -> None:
    """Writes float32 tensors, with the metadata that transformers requires in the header."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(tensors.items()):
        start, end = end, end + 4 * tensor.size
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [start, end]}
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)  # the tensors begin at a multiple of 8
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, tensor in sorted(tensors.items()):
            file.write(np.ascontiguousarray(tensor, "<f4").data)
