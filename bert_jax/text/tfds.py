"""Datasets of tensorflow-datasets as text, without TensorFlow.

A dataset that is already prepared on this machine is read from its files. The code that built it is
not needed, so any dataset and version can be read. Without TensorFlow, it must be in a format with
random access; to prepare one:

    import tensorflow_datasets as tfds
    import tensorflow_datasets.text  # wikipedia, glue and other builders of the older style
    tfds.builder("wikipedia/20230601.en", file_format="array_record").download_and_prepare()
"""

import functools
import hashlib
import importlib.metadata
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.files.errors import UserError
from bert_jax.text.files import RANGE_BYTES
from bert_jax.text.lines import Document, documents_of_text

# Records per read.
_BATCH = 64
# Records of a chunk if the dataset does not know its size.
_RECORDS = 4096


class TfdsText:
    """`tfds:NAME` or `tfds:NAME[SPLIT]`: each record is a document, its text in `data.field`.

    Args:
      argument: a name as tensorflow-datasets takes it (`lm1b`, `wikipedia/20230601.en:1.0.0`),
        found in TFDS_DATA_DIR or else ~/tensorflow_datasets, or the directory of one prepared
        dataset (`/data/lm1b/1.1.0`). SPLIT may be a slice, as in `lm1b[train[:10%]]`; it is
        `train` if none is given.
      config: the field, the form of the text and the policy for malformed text.

    Raises:
      UserError: it does not exist, needs TensorFlow, or has no such split or field.
    """

    def __init__(self, argument: str, config: DataConfig):
        self.name, self.split = parse_name(argument)
        self.config = config
        features = open_builder(self.name).info.features
        if config.field not in features:
            raise UserError(
                f"data.field={config.field!r} is not a field of {self.name}, which has"
                f" {', '.join(sorted(features))}."
            )
        open_split(self.name, self.split)

    def chunks(self) -> list[range]:
        """Returns ranges of record numbers."""
        splits = open_builder(self.name).info.splits.values()
        num_bytes = sum(split.num_bytes for split in splits)
        num_records = sum(split.num_examples for split in splits)
        step = max(1, RANGE_BYTES * num_records // num_bytes) if num_bytes else _RECORDS
        total = len(open_split(self.name, self.split))
        return [range(start, min(start + step, total)) for start in range(0, total, step)]

    def read(self, chunk: range, counts: Counter) -> Iterator[Document]:
        for number, record in read_records(self.name, self.split, chunk):
            text, place = record[self.config.field], f"{self.name}[{self.split}] record {number}"
            if not isinstance(text, bytes):
                kind, field = type(text).__name__, self.config.field
                raise UserError(f"{place}: data.field={field!r} is a {kind}, not text.")
            yield from documents_of_text(text, place, self.config, counts)

    def fingerprint(self) -> dict[str, Any]:
        """Returns name, version and split, and a hash of the names and sizes of the files."""
        builder = open_builder(self.name)
        folder = os.fspath(builder.data_dir)
        files = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        sizes = [(name, os.path.getsize(os.path.join(folder, name))) for name in files]
        return {
            "dataset": builder.info.full_name,
            "split": self.split,
            "records": len(open_split(self.name, self.split)),
            "files_sha256": hashlib.sha256(repr(sizes).encode()).hexdigest(),
            "sentencex": importlib.metadata.version("sentencex"),
        }


def parse_name(argument: str) -> tuple[str, str]:
    """Returns name and split of NAME or NAME[SPLIT]; the split is `train` if none is given."""
    match = re.fullmatch(r"([^\[\]]+?)/?(?:\[(.+)\])?", argument)
    if not match:
        raise UserError(f"Invalid name tfds:{argument}: give tfds:NAME or tfds:NAME[SPLIT].")
    return match[1], match[2] or "train"


def read_records(name: str, split: str, numbers: range | None = None) -> Iterator[tuple[int, Any]]:
    """Yields (number, record) of the records with these numbers; None: all."""
    records = open_split(name, split)
    numbers = range(len(records)) if numbers is None else numbers
    for start in range(0, len(numbers), _BATCH):
        batch = list(numbers[start : start + _BATCH])
        yield from zip(batch, records.__getitems__(batch), strict=True)


@functools.cache
def open_builder(name: str) -> Any:
    """Opens a prepared dataset, by its name or its folder."""
    # Slow to import, and rarely needed.
    from tensorflow_datasets.core import read_only_builder, registered

    if os.path.exists(os.path.join(name, "dataset_info.json")):
        return read_only_builder.builder_from_directory(name)
    if os.path.isabs(name):
        raise UserError(f"{name} is not a prepared dataset: it has no dataset_info.json.")
    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        return read_only_builder.builder_from_files(name, data_dir=folder)
    except registered.DatasetNotFoundError:
        raise UserError(
            f"tfds:{name} is not prepared in {folder or '~/tensorflow_datasets'}: {_prepare(name)}"
        ) from None


@functools.cache
def open_split(name: str, split: str) -> Any:
    """Opens a split, or a slice of one, for reading by record number."""
    builder = open_builder(name)
    try:
        return builder.as_data_source(split=split)
    except NotImplementedError:
        raise UserError(
            f"tfds:{name} is stored as {builder.info.file_format.value}, which only TensorFlow"
            f" reads: {_prepare(name)}"
        ) from None
    except (KeyError, ValueError) as error:
        raise UserError(
            f"tfds:{name} has no split {split!r}; it has"
            f" {', '.join(sorted(builder.info.splits))} ({error})."
        ) from error


def _prepare(name: str) -> str:
    return (
        f"prepare it with tensorflow_datasets.builder({name!r}, file_format='array_record')"
        ".download_and_prepare(), or set TFDS_DATA_DIR to the folder that has it."
    )
