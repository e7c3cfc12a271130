"""Reads sentences of words with tags: CoNLL's columns, tables, JSON lines, datasets, plain text.

Objects and rows have a list of words and a list of tags, which may be texts, or a text and its
entities as character spans (bert_jax.data.labelled.entity_spans); or each row has a word, its tag,
and its sentence in a further column, which may be empty except in the first row of a sentence.

A CoNLL file has one word per line, its tag in the last column, and a blank line after each
sentence.
Columns are separated by tabs or, in a line without one, by spaces. A line that starts with
-DOCSTART- begins a document; in a file without such lines, each sentence is a document. Counts,
besides those of bert_jax.data.labelled.reading and bert_jax.data.labelled.tags:

    docstart_lines       such lines
    comment_lines        lines with # and no word: left out
    multiword_lines      CoNLL-U: tokens of several words, and words that are not written: left out
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

from bert_jax.data.labelled.cells import is_list_text, is_missing, parse_list
from bert_jax.data.labelled.entity_spans import tagged_words
from bert_jax.data.labelled.examples import TaggedExample, split_words
from bert_jax.data.labelled.reading import (
    ending_of,
    field,
    has_objects,
    numbered,
    place,
    read_lines,
    text,
    text_field,
)
from bert_jax.data.labelled.table_rows import Row, first_row, read_rows
from bert_jax.data.labelled.tags import TagReader, is_typed_tag
from bert_jax.files.errors import UserError

_DOCUMENT = "-DOCSTART-"
# CoNLL-U has ten columns, the first the number of the word; "1-2" and "1.1" do not number words.
_CONLL_U, _NO_WORD = 10, re.compile(r"\d+[-.]\d+")
# Minimum share of numbered words in a file that numbers them; Weibo's has some without a number.
_NEARLY_ALL = 0.9
_NUMBERED = re.compile(r"\A(.)([0-9]{1,2})\Z", re.DOTALL)


def read_tagged(
    source: str,
    counts: Counter,
    labelled: bool = True,
    words: str | int = "tokens",
    tags: str | int = "tags",
    plain: bool = False,
    strip_numbers: bool = False,
    by_character: bool = False,
    sentence: str | int | None = None,
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
      sentence: in a table with one word per row, the column that tells sentences apart.

    Raises:
      UserError: naming the line, for a malformed sentence; or there are no sentences.
    """
    # Numbers are columns of CoNLL, names are fields of objects or columns of tables.
    columns = (words if isinstance(words, int) else 0, tags if isinstance(tags, int) else -1)
    fields = (
        "tokens" if isinstance(words, int) else words,
        "tags" if isinstance(tags, int) else tags,
    )

    def sentences(counts: Counter, reader: TagReader | None) -> "Iterator[_Sentence]":
        if has_objects(source) or _is_word_table(source, fields[0]):
            rows = read_rows(source, counts)
            if sentence is not None and _has_word_rows(source, fields[0], str(sentence)):
                return _read_word_rows(rows, reader, *fields, str(sentence))
            return _read_objects(rows, counts, reader, *fields, by_character)
        return _read_conll(source, counts, reader, *columns)

    strips = False
    if strip_numbers:
        every = [(_count_numbers(row[2]), len(row[2])) for row in sentences(Counter(), None)]
        strips = sum(n for n, _ in every) > _NEARLY_ALL * sum(words for _, words in every)
    reader, with_number, num_words = TagReader(counts, plain) if labelled else None, 0, 0
    for number, fields_of in numbered(sentences(counts, reader), f"{source} has no sentences."):
        where, id, texts, found, document, whole = fields_of
        counts["blank_words"] += sum(not word.strip() for word in texts)
        with_number += _count_numbers(texts)
        num_words += len(texts)
        if strips and whole is None:
            texts = tuple(_NUMBERED.sub(r"\1", word) for word in texts)
        name = str(number) if id is None else str(id)
        yield TaggedExample(where, name, texts, found, document, whole)
    if with_number > _NEARLY_ALL * num_words:
        counts["numbers_stripped" if strips else "numbered_words"] += with_number
    if reader:
        reader.finish()


def _count_numbers(words: Sequence[str]) -> int:
    """Counts characters followed by their place in a word, 0 or the previous plus 1: a0 b1 c0."""
    count, before = 0, -1
    for word in words:
        match = _NUMBERED.fullmatch(word)
        number = int(match[2]) if match else -1
        count += match is not None and number in (0, before + 1)
        before = number
    return count


def _is_word_table(path: str, words: str) -> bool:
    """Returns whether a file is a CSV, or a TSV whose header has the column of words."""
    ending = ending_of(path)
    return ending == ".csv" or (ending == ".tsv" and words in map(str.strip, first_row(path)))


def _has_word_rows(source: str, words: str, sentence: str) -> bool:
    """Returns whether a table has one word per row, and the sentence in a further column."""
    _, row = next(read_rows(source, Counter()), ("", {}))
    word = row.get(words)
    return sentence in row and isinstance(word, str) and not is_list_text(word)


# The fields of a TaggedExample; the id is None if the file has none.
_Sentence = tuple[str, Any, tuple[str, ...], tuple[str, ...] | None, int, str | None]


def _read_conll(
    path: str, counts: Counter, reader: TagReader | None, word_column: int, tag_column: int
) -> Iterator[_Sentence]:
    """Yields the sentences of a CoNLL file, with tags if `reader` is given; -1: last column."""
    width, document, is_new = 0, -1, True
    has_documents = any(is_document(line) for _, line in read_lines(path, Counter()))
    first = (line for _, line in read_lines(path, Counter()))
    first = next((x for x in first if x.strip() and x[0] != "#" and not is_document(x)), "")
    columns = (word_column, tag_column) if reader else (word_column,)
    for start, lines in _blocks(path, counts, len(columns_of(first))):
        if not lines:
            is_new = True
            continue
        rows, where = [columns_of(line) for line in lines], place(path, start)
        width = width or len(rows[0])
        if len(columns) > width:
            raise UserError(f"{where}: one column, but labelled files need words and tags.")
        if absent := [column for column in columns if not -width <= column < width]:
            raise UserError(f"{where}: no column {absent[0]}; the {width} are counted from 0.")
        for number, row in enumerate(rows, start):
            if len(row) != width:
                problem = f"{len(row)} columns where the first line has {width}."
                raise UserError(f"{place(path, number)}: {problem}")
        words, tags = tuple(row[word_column] for row in rows), None
        if reader:
            raw_tags = [row[tag_column] for row in rows]
            tags = reader.read(raw_tags, len(words), lambda i, start=start: place(path, start + i))
        document, is_new = document + is_new, not has_documents
        yield where, None, words, tags, document, None


def _blocks(path: str, counts: Counter, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines) of each sentence; no lines: start of a document.

    `width` is the number of columns.
    """
    start, lines = 1, []
    for number, line in chain(read_lines(path, counts), [(0, "")]):
        if is_comment(line, width, at_start=not lines):
            counts["comment_lines"] += 1
        elif width == _CONLL_U and line.strip() and _NO_WORD.fullmatch(columns_of(line)[0]):
            counts["multiword_lines"] += 1
        elif line.strip(" \t") and not is_document(line):
            start = start if lines else number
            lines.append(line)
        else:
            if lines:
                yield start, lines
                lines = []
            if is_document(line):
                counts["docstart_lines"] += 1
                yield number, []


def is_document(line: str) -> bool:
    """Returns whether a line begins a document."""
    return line.startswith(_DOCUMENT)


def is_comment(line: str, width: int, at_start: bool = True) -> bool:
    """Returns whether a line of a CoNLL file with `width` columns is a comment.

    "#" can be a word too: a comment has a different number of columns, or it is a KEY = VALUE where
    a sentence begins (`at_start`).
    """
    if not line.startswith("#"):
        return False
    return len(columns_of(line)) != width or (at_start and bool(re.match(r"#\s*\S+ = ", line)))


def columns_of(line: str) -> list[str]:
    """Returns the cells of a line: between tabs or, without one, between spaces."""
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def _read_objects(
    rows: Iterable[tuple[str, Row]],
    counts: Counter,
    reader: TagReader | None,
    words: str,
    tags: str,
    by_character: bool,
) -> Iterator[_Sentence]:
    """Yields the sentences of objects with words or a text and, if `reader` is given, with tags."""
    document, name = -1, None
    for number, (where, row) in enumerate(rows):
        given, whole = field(row, words, "task.text_a", where), None
        if isinstance(given, str) and not is_list_text(given):
            whole = text_field(row, words, "task.text_a", where)
        texts = _texts(given, f"{words!r} (task.text_a)", where)
        labels = field(row, tags, "task.label", where) if reader else []
        if whole is None or are_tags(labels):
            raw_tags = _texts(labels, f"{tags!r} (task.label)", where)
        else:
            texts, raw_tags = tagged_words(whole, labels, where, counts, by_character)
        counts["empty_sentences"] += not texts
        found = reader and reader.read(raw_tags, len(texts), lambda _, where=where: where)
        document += "document" not in row or row["document"] != name or not number
        name = row.get("document")
        yield where, row.get("id"), texts, found, document, whole


def _read_word_rows(
    rows: Iterable[tuple[str, Row]], reader: TagReader | None, words: str, tags: str, sentence: str
) -> Iterator[_Sentence]:
    """Yields sentences of rows with one word each; an empty `sentence` repeats the row before."""

    def finished() -> _Sentence:
        raw_tags = [tag for _, _, tag in block]
        found = reader.read(raw_tags, len(block), lambda i: block[i][0]) if reader else None
        return block[0][0], current, tuple(word for _, word, _ in block), found, document, None

    block: list[tuple[str, str, str]] = []
    current, document = None, 0
    for where, row in rows:
        name = field(row, sentence, "task.id", where)
        if block and not is_missing(name) and name != current:
            yield finished()
            block, document = [], document + 1
        current = current if is_missing(name) else name
        word = text_field(row, words, "task.text_a", where)
        block.append((where, word, text_field(row, tags, "task.label", where) if reader else ""))
    if block:
        yield finished()


def are_tags(value: Any) -> bool:
    """Returns whether a value has a tag for each word of a text: a list, or tags of entities."""
    if isinstance(value, list) or is_list_text(value):
        return len(value) > 0 and all(isinstance(tag, str) for tag in elements(value))
    return isinstance(value, str) and all(map(is_typed_tag, value.split()))


def elements(value: Any) -> list[Any]:
    """Returns the elements of a list, also one written as text, or else the words of a text."""
    if isinstance(value, list):
        return value
    return parse_list(value) if is_list_text(value) else str(value).split()


def _texts(value: Any, what: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | str):
        raise UserError(f"{where}: {what} is not a list but a {type(value).__name__}.")
    return tuple(text(element, f"an element of {what}", where) for element in elements(value))


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
