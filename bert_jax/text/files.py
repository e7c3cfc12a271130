"""Reads text files as blocks of UTF-8: compression, encodings, and cutting files into ranges."""

import bz2
import codecs
import gzip
import importlib.metadata
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError

_Part = TypeVar("_Part")

BLOCK = 1 << 18
# A plain file is cut into ranges of about this many bytes, the units of parallel work.
RANGE_BYTES = 4 << 20

SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")

_COMPRESSIONS = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
# UTF-32 first: its little-endian mark starts with that of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b")) + b"\x7f"
# Text has hardly any control bytes; random or compressed bytes have about 10 %.
_BINARY_FRACTION = 0.05
_OPENERS: dict[str | None, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
# Small, since a block of 4 bytes of zstd may decompress to 128 KiB.
_ZSTD_STEP = 512
_CORRUPT = (EOFError, OSError, lzma.LZMAError, zlib.error)


class FileRange(NamedTuple):
    """Bytes `start` to `stop` of a file; `stop` None: the file to its end, decompressed."""

    path: str
    start: int = 0
    stop: int | None = None

    def place(self, line: int) -> str:
        """Returns file:line for a line of the range, counted from 1; 0 gives the file."""
        blocks = read_blocks(self.path, stop=self.start) if self.start else ()
        before = sum(block.count(b"\n") for block in blocks)
        return f"{self.path}:{before + line}" if line else self.path


def compression(path: str) -> str | None:
    """Returns how a file is compressed, from its first bytes; None: it is not."""
    with open(path, "rb") as file:
        head = file.read(16)
    return next((name for name, magic in _COMPRESSIONS.items() if magic.match(head)), None)


def read_blocks(path: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yields a file in blocks, decompressed if it is compressed.

    Args:
      path: a file.
      start, stop: the bytes to read of an uncompressed file; None: to its end.

    Raises:
      UserError: the file is compressed and corrupt or truncated, or compressed with zstd but the
        package zstandard is not installed.
    """
    kind = compression(path)
    remaining = (sys.maxsize if stop is None else stop) - start
    try:
        if kind == "zstd":
            yield from _zstd_blocks(path)
            return
        with _OPENERS.get(kind, open)(path, "rb") as file:
            file.seek(start)
            while block := file.read(min(BLOCK, remaining)):
                remaining -= len(block)
                yield block
    except Exception as error:
        # The errors of zstandard are known only where that package is installed.
        if not isinstance(error, _CORRUPT) and type(error).__name__ != "ZstdError":
            raise
        raise UserError(f"{path} is corrupt or truncated: {error}") from error


def _zstd_blocks(path: str) -> Iterator[bytes]:
    """Yields a zstd file; unlike the reader of `zstandard`, it detects a truncated file."""
    try:
        import zstandard
    except ImportError:
        raise UserError(
            f"{path} is compressed with zstd, which needs a package: pip install zstandard"
        ) from None
    frame, rest, parts = zstandard.ZstdDecompressor().decompressobj(), b"", bytearray()
    with open(path, "rb") as file:
        while data := rest or file.read(_ZSTD_STEP):
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            parts += frame.decompress(data)
            rest = frame.unused_data
            if len(parts) >= BLOCK:
                yield bytes(parts)
                parts.clear()
    if parts:
        yield bytes(parts)
    if not frame.eof:
        raise EOFError("a frame is incomplete")


def with_newlines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yields the blocks of a file, with '\n' for '\r' if lines end in '\r' only (old Macs, Excel).

    The first block decides: it has '\r', and no '\n'.
    """
    blocks = iter(blocks)
    head = next(blocks, b"")
    ends_in_cr = b"\r" in head and b"\n" not in head
    for block in chain([head], blocks):
        yield block.replace(b"\r", b"\n") if ends_in_cr else block


def refuse_spreadsheet(path: str) -> None:
    """Raises UserError for a file that is a spreadsheet by its name."""
    if path.lower().endswith(SPREADSHEETS):
        raise UserError(f"{path} is a spreadsheet, not text: save it as CSV, in UTF-8.")


def encoding_of(head: bytes) -> str:
    """Returns utf-8, utf-8-sig, utf-16, utf-32 or binary, from the first bytes of a file."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return "binary" if controls > _BINARY_FRACTION * len(head) else "utf-8"


def cut_file(path: str, may_cut_after: Callable[[bytes], bool] | None) -> list[FileRange]:
    """Cuts a file into ranges of about RANGE_BYTES that can be read independently.

    Args:
      path: a file; only uncompressed UTF-8 is cut.
      may_cut_after: whether the file may be cut after this line; None: it may not be cut at all.
    """
    size = os.path.getsize(path)
    if may_cut_after is None or size <= RANGE_BYTES or compression(path):
        return [FileRange(path)]
    ranges, start = [], 0
    with open(path, "rb") as file:
        if not encoding_of(file.read(BLOCK)).startswith("utf-8"):
            return [FileRange(path)]
        while start < size:
            stop = _next_cut(file, start + RANGE_BYTES, may_cut_after)
            ranges.append(FileRange(path, start, stop))
            start = stop
    return ranges if len(ranges) > 1 else [FileRange(path)]


def _next_cut(file: BufferedIOBase, position: int, may_cut_after: Callable[[bytes], bool]) -> int:
    """Returns the first end of a line after `position` where the file may be cut, or its end.

    Blank lines after it stay in the range before, so that no range has blank lines only.
    """
    file.seek(position)
    is_found, at_line_start = False, False
    while line := file.readline(BLOCK):
        if is_found and line.strip():
            return file.tell() - len(line)
        is_whole_line, at_line_start = at_line_start, line.endswith(b"\n")
        is_found = is_found or (is_whole_line and at_line_start and may_cut_after(line))
    return file.tell()


def make_chunks(
    sized_parts: Iterable[tuple[_Part, int]], min_bytes: int
) -> list[tuple[_Part, ...]]:
    """Returns the parts of files in order, in chunks; only the last may be smaller.

    Args:
      sized_parts: (part, bytes).
      min_bytes: minimum size of a chunk.
    """
    chunks, chunk, size = [], [], 0
    for part, num_bytes in sized_parts:
        chunk.append(part)
        size += num_bytes
        if size >= min_bytes:
            chunks.append(tuple(chunk))
            chunk, size = [], 0
    return [*chunks, tuple(chunk)] if chunk else chunks


def fingerprint(paths: Sequence[str]) -> dict[str, Any]:
    """Returns what determines the sentences of files: names, sizes, contents, and the splitter."""
    files = [
        {
            "name": os.path.basename(path),
            "bytes": os.path.getsize(path),
            "sha256": file_sha256(path),
        }
        for path in paths
    ]
    return {"files": files, "sentencex": importlib.metadata.version("sentencex")}
