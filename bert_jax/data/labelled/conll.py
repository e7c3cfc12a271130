"""Reads sentences of words with tags: CoNLL's columns, JSON lines, datasets, plain text.

JSON objects have a list of words and one of tags, or a text and its entities as characters of it
(bert_jax.data.labelled.entity_spans).

A CoNLL file has a word a line, its tag in the last column, and a blank line after each sentence.
Columns are separated by tabs or, in a line without one, by spaces. A line that starts with
-DOCSTART- begins a document; in a file without such lines, each sentence is a document. Counts,
besides those of bert_jax.data.labelled.reading and bert_jax.data.labelled.tags:

    docstart_lines       such lines
    blank_words          words that are white space or empty: kept
    numbered_words       words with their number, if nearly all words of the file have one: kept
    numbers_stripped     the same, removed
    empty_sentences      JSON or plain lines without a word: kept
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from bert_jax.data.labelled.entity_spans import tagged_words
from bert_jax.data.labelled.examples import TaggedExample
from bert_jax.data.labelled.reading import (
    field,
    has_objects,
    numbered,
    place,
    read_lines,
    read_objects,
    text,
    text_field,
)
from bert_jax.data.labelled.tags import TagReader, is_typed_tag
from bert_jax.files.errors import UserError

_DOCUMENT = "-DOCSTART-"
# Share of the words with a number in a file that numbers them; Weibo's has some without.
_NEARLY_ALL = 0.9
_NUMBERED = re.compile(r"(.)([0-9]{1,2})", re.DOTALL)


def read_tagged(
    source: str,
    counts: Counter,
    labelled: bool = True,
    words: str | int = "tokens",
    tags: str | int = "tags",
    plain: bool = False,
    strip_numbers: bool = False,
    by_character: bool = False,
) -> Iterator[TaggedExample]:
    """Streams the sentences of a CoNLL file, of JSON objects, or of tfds:NAME[SPLIT].

    Successive objects with the same `document` are sentences of one document; without the field,
    each is a document.

    Args:
      source: a file or a dataset.
      counts: number of repairs and conversions by name.
      labelled: whether tags are read; every word must have one then.
      words: objects: the field with the words, or with the text. CoNLL: their column if it is a
        number, else the first.
      tags: the same for tags, or the entities of a text; CoNLL: else the last column.
      plain: tags are not entities, and are not converted.
      strip_numbers: remove the number of each word, if nearly all have one.
      by_character: whether each character of a text is a word.

    Raises:
      UserError: naming the line, for a malformed sentence; or there are no sentences.
    """

    def sentences(counts: Counter, reader: TagReader | None) -> "Iterator[_Sentence]":
        if has_objects(source):
            return _read_objects(source, counts, reader, str(words), str(tags), by_character)
        columns = (words if isinstance(words, int) else 0, tags if isinstance(tags, int) else -1)
        return _read_conll(source, counts, reader, *columns)

    has_numbers = strip_numbers and _Numbers(row[2] for row in sentences(Counter(), None)).found
    reader, numbers = TagReader(counts, plain) if labelled else None, _Numbers()
    for number, sentence in numbered(sentences(counts, reader), f"{source} has no sentences."):
        where, id, texts, found, document, whole = sentence
        counts["blank_words"] += sum(not word.strip() for word in texts)
        numbers.add(texts)
        if has_numbers and whole is None:
            texts = tuple(map(_without_number, texts))
        name = str(number) if id is None else str(id)
        yield TaggedExample(where, name, texts, found, document, whole)
    if numbers.found:
        counts["numbers_stripped" if has_numbers else "numbered_words"] += numbers.count
    if reader:
        reader.finish()


class _Numbers:
    """Finds files whose words are characters with their position in a word: a0 b1 c0 d0 e1.

    Attributes:
      count: words with such a number: 0, or one more than that of the word before.
    """

    def __init__(self, sentences: Iterable[Sequence[str]] = ()):
        self.count = self._words = 0
        for words in sentences:
            self.add(words)

    def add(self, words: Sequence[str]) -> None:
        self._words += len(words)
        before = -1
        for word in words:
            match = _NUMBERED.fullmatch(word)
            number = int(match[2]) if match else -1
            self.count += match is not None and number in (0, before + 1)
            before = number

    @property
    def found(self) -> bool:
        """Whether nearly all words have one."""
        return self.count > _NEARLY_ALL * self._words


def _without_number(word: str) -> str:
    match = _NUMBERED.fullmatch(word)
    return match[1] if match else word


def is_conll(path: str) -> bool:
    """Returns whether the first line of a file has columns, the last one with a tag.

    Raises:
      UserError: there is no such file, or a line is not UTF-8.
    """
    lines = (line for _, line in read_lines(path, Counter()))
    first = next((line for line in lines if line.strip()), "")
    cells = _columns(first)
    return first.startswith(_DOCUMENT) or (len(cells) > 1 and is_typed_tag(cells[-1]))


# The fields of a TaggedExample; the id is None if the file has none.
_Sentence = tuple[str, Any, tuple[str, ...], tuple[str, ...] | None, int, str | None]


def _read_conll(
    path: str, counts: Counter, reader: TagReader | None, word_column: int, tag_column: int
) -> Iterator[_Sentence]:
    """Yields the sentences of a CoNLL file, with tags if `reader` is given.

    Column -1 is the last one.
    """
    width, document, is_new = 0, -1, True
    has_documents = any(line.startswith(_DOCUMENT) for _, line in read_lines(path, Counter()))
    for start, lines in _blocks(path, counts):
        if not lines:
            is_new = True
            continue
        rows = [_columns(line) for line in lines]
        width = width or len(rows[0])
        columns = (word_column, tag_column) if reader else (word_column,)
        for i, row in enumerate(rows):
            _check_columns(row, width, columns, place(path, start + i))
        words, tags = tuple(row[word_column] for row in rows), None
        if reader:
            raw_tags = [row[tag_column] for row in rows]
            tags = reader.read(raw_tags, len(words), lambda i, start=start: place(path, start + i))
        document, is_new = document + is_new, not has_documents
        yield place(path, start), None, words, tags, document, None


def _blocks(path: str, counts: Counter) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines) of each sentence; no lines: start of a document."""
    start, lines = 1, []
    for number, line in chain(read_lines(path, counts), [(0, "")]):
        is_document = line.startswith(_DOCUMENT)
        if line.strip(" \t") and not is_document:
            start = start if lines else number
            lines.append(line)
            continue
        if lines:
            yield start, lines
            lines = []
        if is_document:
            counts["docstart_lines"] += 1
            yield number, []


def _columns(line: str) -> list[str]:
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def _check_columns(row: list[str], width: int, columns: tuple[int, ...], where: str) -> None:
    if len(row) != width:
        raise UserError(f"{where}: {len(row)} columns where the first line has {width}.")
    if len(columns) > width:
        raise UserError(f"{where}: one column, but labelled files need words and tags.")
    for column in columns:
        if not -width <= column < width:
            raise UserError(f"{where}: no column {column}; the {width} columns are counted from 0.")


def _read_objects(
    source: str,
    counts: Counter,
    reader: TagReader | None,
    words: str,
    tags: str,
    by_character: bool,
) -> Iterator[_Sentence]:
    """Yields the sentences of objects with words or a text and, if `reader` is given, with tags."""
    document, name = -1, None
    for number, (where, row) in enumerate(read_objects(source, counts)):
        whole, raw_tags = None, ()
        if isinstance(field(row, words, "data.text_a", where), str):
            whole = text_field(row, words, "data.text_a", where)
            entities = field(row, tags, "data.label", where) if reader else []
            texts, raw_tags = tagged_words(whole, entities, where, counts, by_character)
        else:
            texts = _texts(row, words, "data.text_a", where)
            raw_tags = _texts(row, tags, "data.label", where) if reader else ()
        counts["empty_sentences"] += not texts
        found = None
        if reader:
            found = reader.read(raw_tags, len(texts), lambda _, where=where: where)
        document += "document" not in row or row["document"] != name or not number
        name = row.get("document")
        yield where, row.get("id"), texts, found, document, whole


def _texts(row: dict[str, Any], name: str, role: str, where: str) -> tuple[str, ...]:
    values = field(row, name, role, where)
    if not isinstance(values, list):
        raise UserError(f"{where}: {name!r} ({role}) is not a list but a {type(values).__name__}.")
    return tuple(text(value, f"an element of {name!r} ({role})", where) for value in values)


def read_plain_words(
    path: str, counts: Counter, by_character: bool = False
) -> Iterator[TaggedExample]:
    """Streams the lines of a file as sentences without tags; blank lines have no words.

    Args:
      by_character: whether each character is a word, as in Chinese data sets.

    Raises:
      UserError: there is no such file, no line, or a line is not UTF-8.
    """
    for number, (at, line) in numbered(read_lines(path, counts), f"{path} has no lines."):
        words = split_words(line, by_character)
        counts["empty_sentences"] += not words
        yield TaggedExample(place(path, at), str(number), words, None, number, line)


def split_words(text: str, by_character: bool = False) -> tuple[str, ...]:
    """Returns the words of a text, separated by white space, or all its other characters."""
    words = text.split()
    return tuple("".join(words)) if by_character else tuple(words)
