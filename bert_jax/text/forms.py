"""Splits lines into sentences and groups them into documents."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled)

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
    lines: Iterable[str], form: str, language: str, one_document: bool, counts: Counter
) -> Iterator[Document]:
    """Groups lines into documents of sentences.

    Args:
      lines: without their ends.
      form: `sentences`, `paragraphs` or `wrapped`, as in config/defaults.py.
      language: of the rules that split sentences.
      one_document: all lines are one document; else a line of white space ends a document.
      counts: `cut_documents` and `cut_paragraphs` count the cuts through overlong ones.
    """
    document, size = [], 0
    for sentences in _paragraphs(lines, form, language, counts):
        if not sentences and not one_document and document:
            yield document
            document, size = [], 0
        for sentence in sentences:
            if document and size + len(sentence) > MAX_DOCUMENT:
                yield document
                document, size = [], 0
                counts["cut_documents"] += 1
            document.append(sentence)
            size += len(sentence)
    if document:
        yield document


def _paragraphs(
    lines: Iterable[str], form: str, language: str, counts: Counter
) -> Iterator[list[str]]:
    """Yields the sentences of each paragraph, and an empty list for a blank line."""
    if form == "wrapped":
        lines = _unwrapped(lines, "" if language[:2] in _SPACELESS else " ", counts)
    for line in lines:
        line = line.strip()
        if form == "sentences":
            yield [line] if line else []
        else:
            yield split_sentences(line, language) if line else []


def _unwrapped(lines: Iterable[str], joint: str, counts: Counter) -> Iterator[str]:
    """Yields each run of lines that are not blank, joined."""
    paragraph, size = [], 0
    for line in lines:
        line = line.strip()
        if paragraph and (not line or size + len(line) > MAX_PARAGRAPH):
            counts["cut_paragraphs"] += bool(line)
            yield joint.join(paragraph)
            paragraph, size = [], 0
        if line:
            paragraph.append(line)
            size += len(line)
    if paragraph:
        yield joint.join(paragraph)
