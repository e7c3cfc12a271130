"""Reads TensorFlow checkpoints (version 2, tf.train.Saver since 2017) without TensorFlow.

A checkpoint PREFIX has two kinds of files. `PREFIX.index` is a sorted table, as in LevelDB:

    blocks of entries | index block | footer, 48 bytes: handle of the index block, magic number

A block has entries (length of the prefix shared with the previous key, length of the rest, length
of the value, rest of the key, value), the offsets of the entries with complete keys, their count, a
byte for the compression and a masked CRC-32C. The value of the empty key has the number of data
files; each other value is the protocol buffer of a tensor:

    1 dtype   2 shape   3 number of the file   4 offset   5 size   6 masked CRC-32C   7 slices

`PREFIX.data-00000-of-00001` and so on have the tensors' bytes.
"""

import dataclasses
import glob
import os
import struct
from collections.abc import Iterator, Mapping

import google_crc32c
import ml_dtypes
import numpy as np

from bert_jax.files.errors import UserError

_MAGIC = 0xDB4775248B80FB57
# tensorflow/core/framework/types.proto
_DTYPES = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    14: np.dtype(ml_dtypes.bfloat16),
    19: np.dtype("<f2"),
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """Dtype, shape and place of a tensor; sizes and offsets in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class Bundle(Mapping[str, np.ndarray]):
    """The tensors of a checkpoint by name, mapped into memory and verified on access.

    Attributes:
      entries: index entries of the tensors, sorted by name.
    """

    def __init__(self, prefix: str):
        """Reads the index; raises UserError if that cannot be done."""
        self._prefix = prefix
        path = f"{prefix}.index"
        if not os.path.isfile(path):
            if os.path.isfile(prefix):
                raise UserError(
                    f"{prefix} has version 1 of TensorFlow's checkpoint format, which is not"
                    " supported: load it with tf.train.Saver and save it with write_version=2."
                )
            raise UserError(f"{path} is missing: a TensorFlow checkpoint has an index.")
        with open(path, "rb") as file:
            content = file.read()
        try:
            values = dict(_table(content))
            header = _fields(values.pop(b""))
            self._shards = header.get(1, [1])[0]
            if header.get(2, [0])[0]:
                raise UserError("its numbers are big-endian")
            self.entries = {name.decode(): _entry(value) for name, value in values.items()}
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise UserError(f"{path} cannot be read: {error or type(error).__name__}.") from None
        self._files: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns a tensor. Raises UserError if the data is missing, truncated or corrupt."""
        entry = self.entries[name]
        path = f"{self._prefix}.data-{entry.shard:05}-of-{self._shards:05}"
        data = self._file(path)[entry.offset : entry.offset + entry.size]
        if data.size != entry.size:
            raise UserError(f"{path} is truncated: it ends within the tensor {name}.")
        if entry.size != entry.dtype.itemsize * int(np.prod(entry.shape, dtype=np.int64)):
            raise UserError(f"{self._prefix}.index is corrupt: {name} has {entry.size} bytes.")
        if _masked_crc32c(data) != entry.checksum:
            raise UserError(
                f"{path} is corrupt: the checksum of {name} differs from that in the index."
            )
        return data.view(entry.dtype).reshape(entry.shape)

    def _file(self, path: str) -> np.ndarray:
        if path not in self._files:
            if not os.path.isfile(path):
                raise UserError(f"{path} is missing: the index names tensors in it.")
            is_empty = os.path.getsize(path) == 0
            empty = np.zeros(0, np.uint8)
            self._files[path] = empty if is_empty else np.memmap(path, np.uint8, "r")
        return self._files[path]


def find_prefixes(folder: str) -> list[str]:
    """Returns the prefixes of the checkpoints in a folder, sorted."""
    return sorted(
        path.removesuffix(".index") for path in glob.glob(f"{glob.escape(folder)}/*.index")
    )


def _entry(value: bytes) -> Entry:
    fields = _fields(value)
    if 7 in fields:
        raise UserError("a variable is stored in slices, which is not supported")
    number = fields.get(1, [0])[0]
    if number not in _DTYPES:
        raise UserError(f"a tensor has the dtype number {number}, which is not supported")
    dimensions = (_fields(dimension) for dimension in _fields(fields[2][0]).get(2, []))
    shard, offset, size, checksum = (fields.get(i, [0])[0] for i in (3, 4, 5, 6))
    shape = tuple(dimension.get(1, [0])[0] for dimension in dimensions)
    return Entry(_DTYPES[number], shape, shard, offset, size, checksum)


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a sorted table."""
    footer = len(content) - 48
    if footer < 0 or struct.unpack_from("<Q", content, footer + 40)[0] != _MAGIC:
        raise UserError("its footer is not that of an index; it may be truncated")
    _, end = _handle(content, footer)  # the metadata index block
    blocks, _ = _handle(content, end)
    for _, value in _block(content, *blocks):
        handle, _ = _handle(value, 0)
        yield from _block(content, *handle)


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block."""
    if offset + size + 5 > len(content):
        raise UserError("a block reaches past its end")
    (checksum,) = struct.unpack_from("<I", content, offset + size + 1)
    if _masked_crc32c(content[offset : offset + size + 1]) != checksum:
        raise UserError("it is corrupt: the checksum of a block differs")
    if content[offset + size]:
        raise UserError("it is compressed, which is not supported and TensorFlow never does")
    block = content[offset : offset + size]
    (restarts,) = struct.unpack_from("<I", block, size - 4)
    position, key = 0, b""
    while position < size - 4 * (restarts + 1):
        shared, position = _varint(block, position)
        rest, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + rest]
        position += rest + length
        yield key, block[position - length : position]


def _masked_crc32c(data: bytes | np.ndarray) -> int:
    """Returns a checksum as LevelDB and TensorFlow store it: rotated, plus a number."""
    checksum = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _handle(content: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Returns (offset, size) of a block, and the position after the handle."""
    offset, position = _varint(content, position)
    size, position = _varint(content, position)
    return (offset, size), position


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Returns a number with seven bits per byte, lowest first, and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _fields(message: bytes) -> dict[int, list]:
    """Returns the fields of a protocol buffer, numbers and bytes, by field number."""
    fields: dict[int, list] = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        match tag & 7:
            case 0:
                value, position = _varint(message, position)
            case 2:
                length, position = _varint(message, position)
                value, position = message[position : position + length], position + length
            case 5:
                (value,), position = struct.unpack_from("<I", message, position), position + 4
            case kind:
                raise UserError(f"a field has the wire type {kind}, which the format does not have")
        fields.setdefault(tag >> 3, []).append(value)
    return fields
