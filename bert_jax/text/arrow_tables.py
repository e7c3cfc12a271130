"""Parquet files, and the folders that Hugging Face `datasets` writes, as tables.

A folder is what `Dataset.save_to_disk` wrote (Arrow streams, named by state.json), or has Parquet
files, which are read in the order of their names. A file is read by row group (an Arrow stream by
record batch), a few rows at a time, and only the requested columns.
"""

import contextlib
import functools
import glob
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.files.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow")
# What `datasets` writes beside the Arrow files of a dataset, and above the folders of its splits.
_STATE, _SPLITS = "state.json", "dataset_dict.json"
# Rows that are read at a time, and the buffer of a column in bytes.
_ROWS, _BUFFER = 64, 1 << 18


class Table:
    """A Parquet file, or a file with an Arrow stream, whose record batches count as row groups.

    Attributes:
      schema: its columns.

    Raises:
      UserError: it is neither, or it is damaged.
    """

    def __init__(self, path: str):
        import pyarrow as pa  # takes time, and is rarely needed
        from pyarrow import parquet

        self._path, self._parquet = path, None
        with _named(path):
            if path.lower().endswith(ENDINGS[0]):
                # The pages of a row group are read one after the other, not all at once.
                self._parquet = parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
                self.schema: pa.Schema = self._parquet.schema_arrow
            else:
                self._map = pa.memory_map(path)
                self.schema = pa.ipc.open_stream(self._map).schema

    @property
    def text_columns(self) -> list[str]:
        """The columns with text."""
        from pyarrow import types

        def is_text(kind: "pa.DataType") -> bool:
            kind = kind.value_type if types.is_dictionary(kind) else kind
            checks = (types.is_string, types.is_large_string, types.is_string_view)
            return any(check(kind) for check in (*checks, types.is_binary, types.is_large_binary))

        return [field.name for field in self.schema if is_text(field.type)]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        if self._parquet is not None:
            return self._parquet.metadata.num_rows
        with _named(self._path):
            return sum(batch.num_rows for batch in self._stream())

    def sizes(self, column: str) -> list[int]:
        """Returns the bytes of a column in each row group, not compressed."""
        if self._parquet is None:
            with _named(self._path):
                return [batch.column(column).nbytes for batch in self._stream()]
        groups = map(self._parquet.metadata.row_group, range(self._parquet.num_row_groups))
        return [
            sum(
                group.column(i).total_uncompressed_size
                for i in range(group.num_columns)
                if group.column(i).path_in_schema == column
            )
            for group in groups
        ]

    def texts(
        self, column: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, bytes | None]]:
        """Yields (number of the row, text or null) of row groups `start` to `stop`."""
        import pyarrow as pa

        for first, batch in self._batches(start, stop, [column]):
            with _named(self._path):
                array = batch.column(0)
                if pa.types.is_dictionary(array.type):
                    array = array.dictionary_decode()
                texts = array.cast(pa.large_binary()).to_pylist()
            yield from enumerate(texts, first)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (number, row) of all rows, with values as JSON would have them.

        Class numbers become names, if the file has the features of `datasets`, and None if they
        hide the class (-1).
        """
        from pyarrow import types

        features = self._features()
        short = (types.is_float32, types.is_float16)  # less precise than those of Python
        shorter = [f.name for f in self.schema if any(is_kind(f.type) for is_kind in short)]
        for first, batch in self._batches(0, None, self.schema.names):
            with _named(self._path):
                rows = batch.to_pylist()
            for number, row in enumerate(rows, first):
                for name in shorter:
                    if row[name] is not None:  # 3.8, not 3.799999952316284
                        row[name] = float(str(np.float32(row[name])))
                yield number, {name: _plain(row[name], features.get(name)) for name in row}

    def _features(self) -> dict[str, Any]:
        """Returns the features by column, as `datasets` describes them; {}: there are none."""
        text = (self.schema.metadata or {}).get(b"huggingface", b"{}")
        with _named(self._path):
            return json.loads(text).get("info", {}).get("features", {})

    def _batches(
        self, start: int, stop: int | None, columns: Sequence[str]
    ) -> Iterator[tuple[int, "pa.RecordBatch"]]:
        """Yields (number of its first row, a few rows) of row groups `start` to `stop`."""
        number = 0
        with _named(self._path):
            groups = itertools.islice(self._groups(columns), stop)
            for group, (num_rows, read) in enumerate(groups):
                first = number
                for batch in read() if group >= start else ():
                    yield first, batch
                    first += batch.num_rows
                number += num_rows

    def _groups(
        self, columns: Sequence[str]
    ) -> Iterator[tuple[int, Callable[[], Iterator["pa.RecordBatch"]]]]:
        """Yields each row group as its number of rows, and a function that reads some at a time."""
        if self._parquet is None:
            for batch in self._stream():
                yield batch.num_rows, functools.partial(_slices, batch.select(columns))
            return
        options = {"columns": columns, "use_threads": False}
        for group in range(self._parquet.num_row_groups):
            read = self._parquet.iter_batches
            read = functools.partial(read, _ROWS, row_groups=[group], **options)
            yield self._parquet.metadata.row_group(group).num_rows, read

    def _stream(self) -> Iterator["pa.RecordBatch"]:
        """Yields all record batches; none is copied into memory."""
        import pyarrow as pa

        self._map.seek(0)
        yield from pa.ipc.open_stream(self._map)


def is_table(path: str) -> bool:
    """Returns whether a path is a file or folder that this module reads."""
    if not os.path.isdir(path):
        return path.lower().endswith(ENDINGS)
    names = os.listdir(path)
    return not {_STATE, _SPLITS}.isdisjoint(names) or any(name.endswith(ENDINGS) for name in names)


def table_files(path: str) -> list[str]:
    """Returns the data files of a file or folder in order; raises UserError if it has none."""
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            raise UserError(f"{path}: there is no such file.")
        return [path]
    if os.path.isfile(splits := os.path.join(path, _SPLITS)):
        names = ", ".join(_read_json(splits).get("splits", ()))
        raise UserError(f"{path} has several splits ({names}): name one, {path}/SPLIT.")
    if os.path.isfile(state := os.path.join(path, _STATE)):
        files = [os.path.join(path, f["filename"]) for f in _read_json(state)["_data_files"]]
    else:
        files = sorted(glob.glob(os.path.join(glob.escape(path), f"*{ENDINGS[0]}")))
    if not files:
        raise UserError(
            f"{path} has no {ENDINGS[0]} files, and is not a folder written by save_to_disk."
        )
    return files


def read_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, row) of a file or folder; see `Table.rows`."""
    for file in table_files(path):
        for number, row in Table(file).rows():
            yield f"{file}, row {number}", row


def _slices(batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
    batch.validate(full=True)  # its values are read where the file says they are
    return (batch.slice(first, _ROWS) for first in range(0, batch.num_rows, _ROWS))


def _plain(value: Any, feature: Any) -> Any:
    """Returns a value as JSON would have it; `feature`: its description by `datasets`, or None."""
    if isinstance(feature, list):  # of the elements
        feature = feature[0] if feature else None
    feature = feature if isinstance(feature, Mapping) else {}
    inner = feature.get("feature", feature)
    if isinstance(value, dict):
        kinds = inner if isinstance(inner, Mapping) else {}
        return {name: _plain(item, kinds.get(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, inner) for item in value]
    if feature.get("_type") == "ClassLabel" and isinstance(value, int):
        names = feature.get("names") or ()
        return None if value < 0 else names[value] if value < len(names) else value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | None) else str(value)


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from None


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Raises UserError, with the name of the file, for what pyarrow finds in a damaged one."""
    import pyarrow as pa

    try:
        yield
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError, AttributeError) as error:
        line = " ".join(str(error).split())[:200]
        what = "is damaged, or neither Parquet nor an Arrow stream"
        raise UserError(f"{path} {what}: {line}") from None
