"""Rows of Parquet files, and of datasets that Hugging Face `datasets` wrote, as documents."""

import glob
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.config.data import DataConfig
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import ENDINGS, Table, table_files
from bert_jax.text.files import RANGE_BYTES, fingerprint, make_chunks
from bert_jax.text.lines import Document, documents_of_text


class Part(NamedTuple):
    """Row groups `start` to `stop` of a file."""

    path: str
    start: int
    stop: int


class ParquetText:
    """`parquet:PATH`: each row is a document, its text in the column `data.field`.

    A chunk has whole row groups, of one file or several, with about `RANGE_BYTES` of text or more.

    Args:
      argument: files or folders: globs separated by commas.
      config: the column, the form of the text and the policy for malformed text.

    Raises:
      UserError: there is no such file, folder or column, or the column is not text.
    """

    def __init__(self, argument: str, config: DataConfig):
        self.config = config
        self.paths = find_tables(argument)
        for path in self.paths:
            table, column = Table(path), config.field
            if column not in (texts := table.text_columns):
                what = f"is not a column of {path}"
                if column in table.schema.names:
                    what = f"of {path} is {table.schema.field(column).type}, not text"
                names = ", ".join(texts) or "none"
                raise UserError(f"data.field={column!r} {what}. Columns with text: {names}.")

    def chunks(self) -> list[tuple[Part, ...]]:
        """Returns groups of row groups. Raises UserError if no file has a row."""
        if not any(Table(path).num_rows for path in self.paths):
            raise UserError(f"There are no rows in data.source={self.config.source!r}.")
        parts = (
            (Part(path, number, number + 1), num_bytes)
            for path in self.paths
            for number, num_bytes in enumerate(Table(path).sizes(self.config.field))
        )
        return make_chunks(parts, RANGE_BYTES)

    def read(self, chunk: tuple[Part, ...], counts: Counter) -> Iterator[Document]:
        for part in chunk:
            texts = Table(part.path).texts(self.config.field, part.start, part.stop)
            for number, text in texts:
                place = f"{part.path}, row {number}"
                yield from documents_of_text(text, place, self.config, counts)

    def fingerprint(self) -> dict[str, Any]:
        return fingerprint(self.paths)


def find_tables(globs: str) -> tuple[str, ...]:
    """Returns the data files of what matches globs, separated by commas, each once."""
    files: list[str] = []
    for pattern in map(str.strip, globs.split(",")):
        matches = sorted(glob.glob(os.path.expanduser(local(pattern)), recursive=True))
        if not matches:
            raise UserError(f"No file or folder matches {pattern!r} in data.source.")
        for path in matches:
            if not os.path.isdir(path) and not path.lower().endswith(ENDINGS):
                raise UserError(
                    f"{path} is not a Parquet file: its name must end in {' or '.join(ENDINGS)}"
                    " (text: and jsonl: read other files)."
                )
            files += table_files(path)
    return tuple(dict.fromkeys(files))
