"""Writes tables as Parquet, and as Hugging Face `datasets` does, with its features."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet


def make_table(
    columns: Mapping[str, Sequence[Any]],
    features: Mapping[str, Any] | None = None,
    types: Mapping[str, pa.DataType] | None = None,
) -> pa.Table:
    """Returns a table.

    Args:
      columns: values by column.
      features: features of `datasets` by column, which it keeps in the schema's metadata.
      types: types of columns, where they do not follow from the values.
    """
    arrays = {name: pa.array(values, (types or {}).get(name)) for name, values in columns.items()}
    table = pa.table(arrays)
    if features:
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    return table


def write_parquet(path: pathlib.Path, table: pa.Table, rows: int = 7) -> str:
    """Writes row groups of some rows; returns the path."""
    parquet.write_table(table, path, row_group_size=rows)
    return str(path)


def write_stream(path: pathlib.Path, table: pa.Table, rows: int = 5) -> None:
    """Writes an Arrow stream with record batches of some rows."""
    with pa.ipc.new_stream(str(path), table.schema) as stream:
        stream.write_table(table, max_chunksize=rows)


def save_to_disk(folder: pathlib.Path, table: pa.Table, files: int = 2, rows: int = 5) -> str:
    """Writes a folder of `Dataset.save_to_disk`: Arrow streams and state.json; returns it."""
    folder.mkdir(parents=True)
    names, step = [], -(-len(table) // files)
    for number in range(files):
        names.append({"filename": f"data-{number:05d}-of-{files:05d}.arrow"})
        write_stream(folder / names[-1]["filename"], table.slice(number * step, step), rows)
    (folder / "state.json").write_text(json.dumps({"_data_files": names, "_split": "train"}))
    (folder / "dataset_info.json").write_text("{}")
    return str(folder)


_CLASS = {"names": ["bad", "good"], "_type": "ClassLabel"}
# Texts with a label and tags.
SAMPLE = make_table(
    {
        "text": [f"The cat sat on mat {i} in Z\u00fcrich." for i in range(40)],
        "label": [i % 2 for i in range(40)],
        "tags": [[0, 1][: i % 3] for i in range(40)],
    },
    {"label": _CLASS, "tags": {"feature": _CLASS, "_type": "List"}},
)
