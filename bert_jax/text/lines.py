"""Splits blocks of bytes into lines, lines into sentences, and groups those into documents.

There is one policy for malformed text, `BadText`.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled)

from bert_jax.config.data import DataConfig
from bert_jax.files.errors import UserError
from bert_jax.text.files import (
    FileRange,
    encoding_of,
    read_blocks,
    refuse_spreadsheet,
    with_newlines,
)

Document = list[str]

# A longer line, in bytes, cannot be a sentence or a paragraph; a line of JSON is a document.
MAX_LINE, MAX_JSON_LINE = 1 << 20, 16 << 20

# A longer document, in characters, is cut into several, so that memory stays bounded.
MAX_DOCUMENT = 16 << 20
# The same for a paragraph of many lines.
MAX_PARAGRAPH = 1 << 20

# White space of several bytes, on which sentencex 1.0.32 can panic (after an abbreviation).
_WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
# Languages written without spaces: wrapped lines are joined without one.
_SPACELESS = ("zh", "ja", "th", "lo", "km", "my")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class BadText:
    """The policy for malformed text.

    Attributes:
      policy: `replace` repairs it, `skip` leaves it out, `error` raises UserError.
      counts: number of occurrences of each fault.
      place: returns the place of a line for messages.
      line: number of the line that was read last, from 1 on.
    """

    policy: str
    counts: Counter
    place: Callable[[int], str]
    line: int = 0

    def skips(self, fault: str, problem: str) -> bool:
        """Counts a fault or raises UserError; returns whether to skip the text, not repair it."""
        if self.policy == "error":
            raise UserError(
                f"{self.place(self.line)}: {problem} (data.on_bad_text=replace repairs it, skip"
                " leaves it out)."
            )
        self.counts[fault] += 1
        return self.policy == "skip"


def read_lines(range: FileRange, bad_text: BadText, is_json: bool = False) -> Iterator[str]:
    """Returns the lines in a range of a file; see `split_lines`."""
    blocks = read_blocks(*range)
    if not range.start:
        blocks = with_newlines(_decoded(blocks, range.path, bad_text))
    return split_lines(blocks, bad_text, is_json)


def _decoded(blocks: Iterator[bytes], path: str, bad_text: BadText) -> Iterable[bytes]:
    """Returns the blocks of a file as UTF-8, or none, depending on the encoding of the first."""
    head = next(blocks, b"")
    match encoding_of(head):
        case "utf-8-sig":
            bad_text.counts["utf8_boms"] += 1
            head = head[3:]
        case "utf-16" | "utf-32" as encoding:
            name = encoding.upper()
            problem = f"a file in {name}; iconv -f {name} -t UTF-8 converts it"
            if bad_text.skips(f"{encoding.replace('-', '')}_files", problem):
                return ()
            texts = codecs.iterdecode(chain([head], blocks), encoding, errors="replace")
            return (text.encode() for text in texts)
        case "binary":
            # Repairing it would not give text.
            if bad_text.policy != "skip":
                refuse_spreadsheet(path)
                raise UserError(
                    f"{path} is a binary file, judging by its control bytes: remove it from"
                    " data.source, or leave such files out with data.on_bad_text=skip."
                )
            bad_text.counts["binary_files"] += 1
            return ()
    return chain([head], blocks)


def split_lines(blocks: Iterable[bytes], bad_text: BadText, is_json: bool = False) -> Iterator[str]:
    r"""Splits UTF-8 at '\n' only, and repairs malformed lines or leaves them out.

    `read_lines` gives it '\n' for the line ends of every file. A malformed line never becomes a
    blank one, which would end a document.

    Args:
      blocks: the text, cut anywhere.
      bad_text: the policy for malformed lines; its `line` is that of the line yielded last.
      is_json: lines may be longer, and overlong ones left out, since parts of them are not JSON.

    Yields:
      lines without their ends.
    """
    limit = MAX_JSON_LINE if is_json else MAX_LINE
    is_rest, is_overlong, is_dropped = False, False, False
    for piece, is_last in _pieces(blocks, limit):
        if not is_rest:
            bad_text.line += 1
            is_overlong = is_dropped = not is_last
            if is_overlong:
                problem = f"a line of more than {limit} bytes"
                is_dropped = bad_text.skips("overlong_lines", problem) or is_json
        is_rest = not is_last
        if is_dropped:
            continue
        if is_last and piece.endswith(b"\r"):
            piece = piece[:-1]
            bad_text.counts["crlf_lines"] += 1
        line = _repaired(piece, bad_text)
        if line is not None and not (is_overlong and not line.strip()):
            yield line


def _repaired(line: bytes, bad_text: BadText) -> str | None:
    """Returns a line, decoded; None: it is left out."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        if bad_text.skips("invalid_utf8_lines", f"invalid UTF-8 ({error.reason})"):
            return None
        text = line.decode(errors="replace")
    if "\0" not in text:
        return text
    if bad_text.skips("nul_lines", "a NUL byte"):
        return None
    text = text.replace("\0", "")
    return text if text.strip() else None


def _pieces(blocks: Iterable[bytes], limit: int) -> Iterator[tuple[bytes, bool]]:
    """Yields (piece of a line, whether it is the last one); up to `limit` bytes are one piece."""
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
    """Cuts a line of more than `limit` bytes after white space, or between two characters."""
    stop = 1 + max(line.rfind(b" ", 0, limit), line.rfind(b"\t", 0, limit))
    if not stop:
        stop = limit
        # A character of UTF-8 has at most 3 bytes 10xxxxxx after its first one.
        while limit - stop < 3 and stop > 1 and line[stop] & 0xC0 == 0x80:
            stop -= 1
    return line[:stop], line[stop:]


def lines_of_text(text: str, bad_text: BadText) -> Iterator[str]:
    """Returns the lines of a text in the line of JSON that was read last."""
    if _SURROGATE.search(text):
        if bad_text.skips("surrogate_texts", "a lone surrogate"):
            return iter(())
        text = _SURROGATE.sub("\ufffd", text)
    own = replace(bad_text, place=lambda _: bad_text.place(bad_text.line))
    return split_lines([text.encode()], own)


# ------------------------------------------------------------------- sentences, documents


def split_sentences(text: str, language: str) -> list[str]:
    """Splits one paragraph into its sentences, stripped and not empty.

    For a language without rules, sentencex uses those of a related language, or English.
    """
    if not text.isascii():
        text = _WIDE_SPACE.sub(" ", text)
    pieces = (piece.strip() for piece in segment(language, text))
    return [piece for piece in pieces if piece]


def make_documents(
    lines: Iterable[str], config: DataConfig, one_document: bool, counts: Counter
) -> Iterator[Document]:
    """Groups lines into documents of sentences.

    Args:
      lines: without their ends.
      config: `line_format`, the `language` of the rules that split sentences, and whether each line
        is a document (`document_separator`).
      one_document: all lines are one document; else a line of white space ends a document.
      counts: `cut_documents` and `cut_paragraphs` count the cuts through overlong ones.
    """
    if config.line_format == "wrapped":
        joint = "" if config.language[:2] in _SPACELESS else " "
        lines = _unwrapped(lines, joint, counts)
    document, size = [], 0
    for line in map(str.strip, lines):
        ends = not line or config.document_separator == "line"
        if ends and not one_document and document:
            yield document
            document, size = [], 0
        is_sentence = line and config.line_format == "sentences"
        for sentence in [line] if is_sentence else split_sentences(line, config.language):
            if document and size + len(sentence) > MAX_DOCUMENT:
                yield document
                document, size = [], 0
                counts["cut_documents"] += 1
            document.append(sentence)
            size += len(sentence)
    if document:
        yield document


def documents_of_text(
    text: bytes | None, place: str, config: DataConfig, counts: Counter
) -> Iterator[Document]:
    """Returns a text of `data.field` as a document; None, a fault, is left out."""
    at = lambda line: f"{place}, line {line}" if line else place  # noqa: E731
    bad_text = BadText(config.on_bad_text, counts, at)
    if text is None:
        bad_text.skips("non_text_fields", f"column {config.field!r} is null")
        return iter(())
    return make_documents(split_lines([text], bad_text), config, True, counts)


def _unwrapped(lines: Iterable[str], joint: str, counts: Counter) -> Iterator[str]:
    """Yields each run of lines that are not blank, joined."""
    paragraph, size = [], 0
    for line in map(str.strip, lines):
        if paragraph and (not line or size + len(line) > MAX_PARAGRAPH):
            counts["cut_paragraphs"] += bool(line)
            yield joint.join(paragraph)
            paragraph, size = [], 0
        if line:
            paragraph.append(line)
            size += len(line)
    if paragraph:
        yield joint.join(paragraph)
