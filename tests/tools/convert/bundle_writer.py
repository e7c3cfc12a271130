"""Writes TensorFlow checkpoints: protocol buffers by `protobuf`, checksums by `tensorboardX`."""

import pathlib
import struct

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorboardX.crc32c import _crc32c as crc32c

TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bfloat16": 14, "float16": 19}
_FIELD = descriptor_pb2.FieldDescriptorProto


def _messages():
    """tensorflow/core/protobuf/tensor_bundle.proto, as far as it is needed."""
    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", package="t", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            is_message = isinstance(kind, str)
            made.field.add(
                name=field,
                number=number,
                label=label,
                type=_FIELD.TYPE_MESSAGE if is_message else kind,
                type_name=f".t.{kind}" if is_message else None,
            )

    message("Dim", (1, "size", _FIELD.TYPE_INT64, False))
    message("Shape", (2, "dim", "Dim", True))
    message("Version", (1, "producer", _FIELD.TYPE_INT32, False))
    message(
        "Header",
        (1, "num_shards", _FIELD.TYPE_INT32, False),
        (2, "endianness", _FIELD.TYPE_INT32, False),
        (3, "version", "Version", False),
    )
    message(
        "Entry",
        (1, "dtype", _FIELD.TYPE_INT32, False),
        (2, "shape", "Shape", False),
        (3, "shard_id", _FIELD.TYPE_INT32, False),
        (4, "offset", _FIELD.TYPE_INT64, False),
        (5, "size", _FIELD.TYPE_INT64, False),
        (6, "crc32c", _FIELD.TYPE_FIXED32, False),
        (7, "slices", "Shape", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [made.name for made in file.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))
        for name in names
    }


MESSAGES = _messages()


def mask(crc: int) -> int:
    return ((crc >> 15) | ((crc << 17) & 0xFFFFFFFF)) + 0xA282EAD8 & 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


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
    header = MESSAGES["Header"](num_shards=shards, endianness=oddities.get("endianness", 0))
    header.version.producer = 1
    values = {b"": header.SerializeToString()}
    for i, (name, array) in enumerate(sorted(arrays.items())):
        array = np.asarray(array)
        raw, shard = array.tobytes(), i % shards
        entry = MESSAGES["Entry"](
            dtype=oddities.get("dtype", TYPES[array.dtype.name]),
            shard_id=shard,
            offset=len(data[shard]),
            size=len(raw),
            crc32c=mask(crc32c(raw)),
        )
        entry.shape.SetInParent()
        for size in array.shape:
            entry.shape.dim.add(size=size)
        if "slices" in oddities:
            entry.slices.add()
        data[shard] += raw
        values[name.encode()] = entry.SerializeToString()
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
