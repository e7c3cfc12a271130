"""Writes TensorFlow checkpoints; shares no code with the reader. Checksums by `tensorboardX`."""

import pathlib
import struct

import numpy as np
from tensorboardX.crc32c import _crc32c as crc32c

TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bfloat16": 14, "float16": 19}


def mask(crc: int) -> int:
    return ((crc >> 15) | ((crc << 17) & 0xFFFFFFFF)) + 0xA282EAD8 & 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Returns a protocol buffer of (number, value); a number of 0 is left out, as in proto3."""
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif value:
            out += varint(number << 3) + varint(value)
    return out


def block(pairs, interval: int, compression: int) -> bytes:
    body, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(pairs):
        shared = 0
        if i % interval == 0:
            restarts.append(len(body))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        body += varint(shared) + varint(len(key) - shared) + varint(len(value))
        body += key[shared:] + value
        last = key
    body += struct.pack(f"<{len(restarts)}I", *restarts) + struct.pack("<I", len(restarts))
    body += bytes([compression])
    return body + struct.pack("<I", mask(crc32c(body)))


def write_bundle(
    prefix: pathlib.Path, arrays: dict, shards: int = 1, a_block: int = 7, **oddities
) -> None:
    """`oddities`: compression, endianness, slices, type number."""
    data = [b""] * shards
    values = {b"": message((1, shards), (2, oddities.get("endianness", 0)), (3, message((1, 1))))}
    for i, (name, array) in enumerate(sorted(arrays.items())):
        array = np.asarray(array)
        raw, shard = array.tobytes(), i % shards
        entry = message(
            (1, oddities.get("dtype", TYPES[array.dtype.name])),
            (2, message(*((2, message((1, size))) for size in array.shape))),
            *((3, shard), (4, len(data[shard])), (5, len(raw))),
        )
        entry += varint(6 << 3 | 5) + struct.pack("<I", mask(crc32c(raw)))
        values[name.encode()] = entry + (message((7, b"")) if "slices" in oddities else b"")
        data[shard] += raw
    pairs = sorted(values.items())
    compression, content, index = oddities.get("compression", 0), b"", []
    for start in range(0, len(pairs), a_block):
        part = pairs[start : start + a_block]
        encoded = block(part, 3, compression)
        index.append((part[-1][0] + b"~", varint(len(content)) + varint(len(encoded) - 5)))
        content += encoded
    handles = b""
    for encoded in (block([], 1, 0), block(index, 1, 0)):
        handles += varint(len(content)) + varint(len(encoded) - 5)
        content += encoded
    content += handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    pathlib.Path(f"{prefix}.index").write_bytes(content)
    for shard, raw in enumerate(data):
        pathlib.Path(f"{prefix}.data-{shard:05}-of-{shards:05}").write_bytes(raw)
