"""Blocks of bytes -> lines of text, with one policy for whatever in them cannot be right."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from bert_jax.text.files import (
    FileRange,
    encoding_of,
    lines_before,
    open_decompressed,
    read_blocks,
    to_utf8,
)

# A longer line, in bytes, cannot be a sentence or a paragraph.
MAX_LINE = 1 << 20

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class BadText:
    """What to do with text that cannot be right; everything met is counted.

    Attributes:
      policy: `replace` mends it, `skip` leaves it out, `error` raises ValueError.
      counts: grows by one under the name of the fault at each meeting.
    """

    policy: str
    counts: Counter

    def is_skipped(self, fault: str, problem: str, where: Callable[[], str]) -> bool:
        """Counts a fault, and tells whether to leave its text out (else it is to be mended)."""
        if self.policy == "error":
            raise ValueError(f"{where()}: {problem} (data.on_bad_text=replace or skip goes on).")
        self.counts[fault] += 1
        return self.policy == "skip"


def read_lines(
    range: FileRange, bad_text: BadText, limit: int = MAX_LINE, may_cut: bool = True
) -> Iterator[tuple[int, str]]:
    """Yields (number of the line in the range, line) of a range of a file; see `split_lines`."""
    path, start, stop = range
    with open_decompressed(path) as file:
        if start:
            file.seek(start)
        blocks = read_blocks(file, path, None if stop is None else stop - start)
        if not start:
            blocks = _decoded(blocks, path, bad_text)
        yield from split_lines(blocks, bad_text, partial(place, range), limit, may_cut)


def place(range: FileRange, number: int) -> str:
    """Names a line of a range as file:line, by its number in the range."""
    return f"{range.path}:{lines_before(range) + number}"


def _decoded(blocks: Iterator[bytes], path: str, bad_text: BadText) -> Iterator[bytes]:
    """Judges a file by its first block: its blocks as UTF-8, or none at all."""
    head = next(blocks, b"")
    match encoding_of(head):
        case "utf-8-sig":
            bad_text.counts["utf8_boms"] += 1
            head = head[3:]
        case "utf-16" | "utf-32" as encoding:
            name = encoding.upper()
            if bad_text.is_skipped(
                f"{encoding.replace('-', '')}_files",
                f"a file in {name}; iconv -f {name} -t UTF-8 converts it",
                lambda: path,
            ):
                return iter(())
            return to_utf8(chain([head], blocks), encoding)
        case "binary":
            # No text would come of mending this.
            if bad_text.policy != "skip":
                raise ValueError(
                    f"{path} is no text but a binary file, by its control bytes: take it out of"
                    " data.source, or leave such files out with data.on_bad_text=skip."
                )
            bad_text.counts["binary_files"] += 1
            return iter(())
    return chain([head], blocks)


def split_lines(
    blocks: Iterable[bytes],
    bad_text: BadText,
    where: Callable[[int], str],
    limit: int = MAX_LINE,
    may_cut: bool = True,
) -> Iterator[tuple[int, str]]:
    r"""Cuts UTF-8 at '\n', and there only, and mends or leaves out the lines that are bad.

    A line that is bad never comes out as a blank one, which would end a document.

    Args:
      blocks: the text, cut anywhere.
      bad_text: what to do with bad lines.
      where: names the place of a line, by its number from 1 on, for messages.
      limit: most bytes of a line.
      may_cut: a longer line is mended by cutting it; False: it can only be left out.

    Yields:
      (number of the line, line without its end).
    """
    number, is_rest, is_overlong, is_dropped = 0, False, False, False
    for piece, is_last in _pieces(blocks, limit):
        if not is_rest:
            number += 1
            is_overlong = is_dropped = not is_last
            if is_overlong:
                problem = f"a line of more than {limit} bytes"
                is_dropped = (
                    bad_text.is_skipped("overlong_lines", problem, partial(where, number))
                    or not may_cut
                )
        is_rest = not is_last
        if is_dropped:
            continue
        if is_last and piece.endswith(b"\r"):
            piece = piece[:-1]
            bad_text.counts["crlf_lines"] += 1
        line = _mended(piece, bad_text, partial(where, number))
        if line is not None and not (is_overlong and not line.strip()):
            yield number, line


def _mended(line: bytes, bad_text: BadText, where: Callable[[], str]) -> str | None:
    """Decodes a line; None: it is left out."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        problem = f"invalid UTF-8 ({error.reason})"
        if bad_text.is_skipped("invalid_utf8_lines", problem, where):
            return None
        text = line.decode(errors="replace")
    if "\0" not in text:
        return text
    if bad_text.is_skipped("nul_lines", "a NUL byte", where):
        return None
    text = text.replace("\0", "")
    return text if text.strip() else None


def _pieces(blocks: Iterable[bytes], limit: int) -> Iterator[tuple[bytes, bool]]:
    """Yields (piece of a line, is it its last one): lines up to `limit` bytes are one piece."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            while len(line) > limit:
                piece, line = _cut(line, limit)
                yield piece, False
            yield line, True
        while len(rest) > limit:
            piece, rest = _cut(rest, limit)
            yield piece, False
    if rest:
        yield rest, True


def _cut(line: bytes, limit: int) -> tuple[bytes, bytes]:
    """Cuts a line of more than `limit` bytes after white space, or else between two characters."""
    stop = 1 + max(line.rfind(b" ", 0, limit), line.rfind(b"\t", 0, limit))
    if not stop:
        stop = limit
        # A character of UTF-8 has at most 3 bytes 10xxxxxx after its first one.
        while limit - stop < 3 and stop > 1 and line[stop] & 0xC0 == 0x80:
            stop -= 1
    return line[:stop], line[stop:]


def lines_of_text(text: str, bad_text: BadText, where: Callable[[], str]) -> Iterator[str]:
    """Yields the lines of a text that came from elsewhere than a file of lines."""
    if _SURROGATE.search(text):
        problem = "half of a surrogate pair"
        if bad_text.is_skipped("surrogate_texts", problem, where):
            return
        text = _SURROGATE.sub("\ufffd", text)
    for _, line in split_lines([text.encode()], bad_text, lambda _: where()):
        yield line
