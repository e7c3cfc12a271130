"""Splits lines into sentences and groups them into documents."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled)

from bert_jax.config.data import DataConfig
from bert_jax.files.errors import UserError

Document = list[str]

# A longer document, in characters, is cut into several, so that memory stays bounded.
MAX_DOCUMENT = 16 << 20
# The same for a paragraph of many lines.
MAX_PARAGRAPH = 1 << 20

# White space of several bytes, on which sentencex 1.0.32 can panic (after an abbreviation).
_WIDE_SPACE = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
# Languages written without spaces: wrapped lines are joined without one.
_SPACELESS = ("zh", "ja", "th", "lo", "km", "my")


def check_language(language: str) -> None:
    """Raises UserError if `language` does not have the form of an ISO 639 code."""
    if not re.fullmatch(r"[a-z]{2,3}([-_][A-Za-z]{2,8})*", language):
        raise UserError(
            f"data.language={language!r} is not a language code: give one such as en, de or zh"
            " (ISO 639)."
        )


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
      config: `line_format`, and the `language` of the rules that split sentences.
      one_document: all lines are one document; else a line of white space ends a document.
      counts: `cut_documents` and `cut_paragraphs` count the cuts through overlong ones.
    """
    if config.line_format == "wrapped":
        joint = "" if config.language[:2] in _SPACELESS else " "
        lines = _unwrapped(lines, joint, counts)
    document, size = [], 0
    for line in map(str.strip, lines):
        if not line and not one_document and document:
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
