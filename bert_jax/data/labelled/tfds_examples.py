"""Reads examples of prepared datasets of tensorflow-datasets (bert_jax.text.tfds)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.data.labelled.examples import TaggedExample, TextExample
from bert_jax.data.labelled.tables import Columns
from bert_jax.data.labelled.tags import TagReader
from bert_jax.files.errors import UserError
from bert_jax.text.tfds import open_builder, open_split, parse_name

# Records per read.
_BATCH = 64


def read_tfds_texts(
    argument: str, columns: Columns, counts: Counter, labelled: bool = True
) -> Iterator[TextExample]:
    """Streams texts or pairs. Class labels are names, other numbers are text.

    Args:
      argument: NAME or NAME[SPLIT], as in `glue/mrpc[validation]`.
      columns: names of the dataset's features; `idx` in place of an id.
      counts: `empty_texts`: rows with a text that is empty; kept.
      labelled: whether labels are read; every record must have one then.

    Raises:
      UserError: naming the record; or the dataset does not exist, or has no such feature.
    """
    name, split = parse_name(argument)
    features = _features(name, columns.names(labelled))
    for where, number, record in _records(name, split):
        text_a = _text(record[columns.text_a], columns.text_a, where, counts)
        text_b = None
        if columns.text_b is not None:
            text_b = _text(record[columns.text_b], columns.text_b, where, counts)
        counts["empty_texts"] += not text_a.strip() or (text_b is not None and not text_b.strip())
        id = record[columns.id] if columns.id else record.get("idx", number)
        labels = _labels(features, columns, record, where) if labelled else None
        yield TextExample(where, _plain(id), text_a, text_b, labels)


def read_tfds_tags(
    argument: str,
    words: str,
    tags: str,
    counts: Counter,
    labelled: bool = True,
    plain: bool = False,
) -> Iterator[TaggedExample]:
    """Streams sentences of words with tags, as in `conll2003[train]`; each its own document.

    Args:
      words: feature with the words.
      tags: feature with the tags, by class or as text.
      counts: of the tags that were converted (bert_jax.data.labelled.tags).
      plain: tags are not entities, and are not converted.

    Raises:
      UserError: naming the record; or the dataset does not exist, or has no such feature.
    """
    name, split = parse_name(argument)
    features = _features(name, (words, tags) if labelled else (words,))
    reader = TagReader(counts, plain)
    for where, number, record in _records(name, split):
        texts = tuple(_text(word, words, where, counts) for word in record[words])
        converted = None
        if labelled:
            names = tuple(_named(features[tags].feature, tag, where) for tag in record[tags])
            converted = reader.read(names, len(texts), lambda _, where=where: where)
        yield TaggedExample(where, str(number), texts, converted, number)
    reader.finish()


def _features(name: str, required: tuple[Any, ...]) -> Any:
    features = open_builder(name).info.features
    for feature in required:
        if feature not in features:
            raise UserError(
                f"{feature!r} is not a feature of {name}, which has {', '.join(sorted(features))}."
            )
    return features


def _records(name: str, split: str) -> Iterator[tuple[str, int, Any]]:
    records = open_split(name, split)
    for start in range(0, len(records), _BATCH):
        numbers = list(range(start, min(start + _BATCH, len(records))))
        for number, record in zip(numbers, records.__getitems__(numbers), strict=True):
            yield f"tfds:{name}[{split}], record {number}", number, record


def _labels(features: Any, columns: Columns, record: Any, where: str) -> tuple[str, ...]:
    feature, value = features[columns.label], record[columns.label]
    if hasattr(feature, "feature"):
        return tuple(_named(feature.feature, label, where) for label in value)
    return (_named(feature, value, where),)


def _named(feature: Any, value: Any, where: str) -> str:
    """Returns the name of a class; any other value as text."""
    if isinstance(value, float):
        # The shortest number in the dataset's precision: 3.8, not 3.799999952316284.
        return str(np.dtype(feature.np_dtype).type(value))
    if not hasattr(feature, "int2str"):
        return _plain(value)
    # tensorflow-datasets writes -1 where a test set hides its labels.
    if value < 0:
        raise UserError(f"{where}: no label.")
    return feature.int2str(int(value))


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _text(value: Any, name: Any, where: str, counts: Counter) -> str:
    if not isinstance(value, bytes):
        raise UserError(f"{where}: {name!r} is a {type(value).__name__}, not text.")
    counts["nul_lines"] += b"\0" in value
    try:
        return value.replace(b"\0", b"").decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: {name!r} is invalid UTF-8 ({error.reason}).") from None
