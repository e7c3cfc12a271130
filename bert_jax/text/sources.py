r"""Sources of text, named by `data.source`, as documents of sentences.

    text:GLOB      files of lines; globs separated by commas, ** for any depth, in sorted order.
                   data.line_format sets what a line is, data.document_separator its documents.
    jsonl:GLOB     files of JSON objects, one per line, each a document, its text in data.field.
    parquet:PATH   Parquet files, or folders of Hugging Face `datasets` (bert_jax.text.parquet).
    tfds:NAME      a dataset of tensorflow-datasets (bert_jax.text.tfds).
    installed_docs the documentation of the installed packages (bert_jax.text.installed_docs).

Files are plain or compressed (gzip, bz2, xz, zstd; detected from their first bytes, not their
names). They are streamed, and plain ones are cut between documents into ranges of about 4 MB, so
the units of work do not depend on the number of processes. The end of a file ends a document
(the released program continues into the next file until a blank line).

`data.on_bad_text` is the policy for malformed text, which is counted by name (docs/data.md lists
both). A corpus without any sentence raises UserError.
"""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bert_jax.config.data import DataConfig
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.text.files import RANGE_BYTES, FileRange, cut_file, fingerprint, make_chunks
from bert_jax.text.installed_docs import InstalledDocs
from bert_jax.text.lines import BadText, Document, lines_of_text, make_documents, read_lines
from bert_jax.text.parquet import ParquetText
from bert_jax.text.tfds import TfdsText


class Source(Protocol):
    """A corpus. Its documents are those that `read` yields for each chunk, in order."""

    def chunks(self) -> list[Any]:
        """Returns the units of work, which can be pickled and depend on the input only."""
        ...

    def read(self, chunk: Any, counts: Counter) -> Iterator[Document]:
        """Streams the documents of one chunk, and counts what was repaired or left out."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Returns JSON that identifies the input."""
        ...


def make_source(config: DataConfig) -> Source:
    """Makes the source that `config.source` names; raises UserError if it is invalid or empty."""
    if not re.fullmatch(r"[a-z]{2,3}([-_][A-Za-z]{2,8})*", config.language):
        raise UserError(
            f"data.language={config.language!r} is not a language code: give one such as en, de or"
            " zh (ISO 639)."
        )
    kind, _, argument = config.source.partition(":")
    match kind:
        case "text":
            if config.line_format == "wrapped" and config.document_separator == "blank_line":
                raise UserError(
                    "data.line_format=wrapped needs data.document_separator=file or line, since"
                    " blank lines end paragraphs."
                )
            return TextFiles(find_files(argument), config)
        case "jsonl":
            return JsonLines(find_files(argument), config)
        case "parquet":
            return ParquetText(argument, config)
        case "tfds":
            return TfdsText(argument, config)
        case "installed_docs":
            if argument:
                raise UserError(
                    f"data.source=installed_docs takes no argument, but got {argument!r}."
                )
            return InstalledDocs()
    raise UserError(
        f"Unknown data.source={config.source!r}. Available: installed_docs, text:GLOB,"
        " jsonl:GLOB, parquet:PATH, tfds:NAME."
    )


@dataclass(frozen=True)
class TextFiles:
    """`text:GLOB` and `jsonl:GLOB`: local files; a chunk is a tuple of ranges of files."""

    paths: tuple[str, ...]
    config: DataConfig

    def chunks(self) -> list[tuple[FileRange, ...]]:
        """Cuts the files into chunks. Raises UserError if no file contains any text."""
        parts = (
            (part, (os.path.getsize(path) if part.stop is None else part.stop) - part.start)
            for path in self.paths
            for part in cut_file(path, self._may_cut_after())
        )
        chunks = make_chunks(parts, RANGE_BYTES)
        counts = Counter()
        if not any(True for chunk in chunks for _ in self.read(chunk, counts)):
            faults = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
            raise UserError(f"There is no text in data.source={self.config.source!r} ({faults}).")
        return chunks

    def read(self, chunk: tuple[FileRange, ...], counts: Counter) -> Iterator[Document]:
        for part in chunk:
            is_empty = True
            for document in self._read_range(part, counts):
                is_empty = False
                yield document
            # The policy may leave out a range of a file, which it counts.
            if is_empty and part.stop is None:
                counts["files_without_text"] += 1

    def fingerprint(self) -> dict[str, Any]:
        return fingerprint(self.paths)

    def _may_cut_after(self) -> Callable[[bytes], bool] | None:
        if self.config.document_separator == "file":
            return None
        if self.config.document_separator == "line" and self.config.line_format != "wrapped":
            return lambda line: True
        # A line of white space beyond ASCII ends a document too, but files are not cut there.
        return lambda line: not line.strip()

    def _read_range(self, part: FileRange, counts: Counter) -> Iterator[Document]:
        lines = read_lines(part, BadText(self.config.on_bad_text, counts, part.place))
        one_document = self.config.document_separator == "file"
        return make_documents(lines, self.config, one_document, counts)


@dataclass(frozen=True)
class JsonLines(TextFiles):
    """`jsonl:GLOB`: each line of the files is a JSON object, and a document."""

    def _may_cut_after(self) -> Callable[[bytes], bool]:
        return lambda line: True

    def _read_range(self, part: FileRange, counts: Counter) -> Iterator[Document]:
        bad_text = BadText(self.config.on_bad_text, counts, part.place)
        for line in read_lines(part, bad_text, is_json=True):
            text = self._text(line, bad_text) if line.strip() else None
            if text is not None:
                lines = lines_of_text(text, bad_text)
                yield from make_documents(lines, self.config, True, counts)

    def _text(self, line: str, bad_text: BadText) -> str | None:
        """Returns the text in a line of JSON; None: the line is left out."""
        field = self.config.field
        try:
            value = json.loads(line)
        except ValueError as error:  # also for numbers of thousands of digits
            bad_text.skips("malformed_json_lines", f"invalid JSON: {error}")
            return None
        if not isinstance(value, dict):
            fault = "malformed_json_lines"
            problem = f"a JSON {type(value).__name__} instead of an object"
        elif field not in value:
            fault = "missing_fields"
            problem = f"no field {field!r} (data.field) but {', '.join(map(repr, value))}"
        elif not isinstance(value[field], str):
            fault = "non_text_fields"
            problem = f"field {field!r} is a {type(value[field]).__name__}, not a string"
        else:
            return value[field]
        bad_text.skips(fault, problem)
        return None


def find_files(globs: str) -> tuple[str, ...]:
    """Returns the files that match globs, separated by commas, each once, at its first match."""
    paths = []
    for pattern in map(str.strip, globs.split(",")):
        matches = glob.glob(os.path.expanduser(local(pattern)), recursive=True)
        if not (files := sorted(filter(os.path.isfile, matches))):
            raise UserError(f"No file matches {pattern!r} in data.source.")
        paths += files
    return tuple(dict.fromkeys(paths))
