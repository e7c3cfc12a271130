"""Text of a tensorflow-datasets corpus that each test run builds itself, without TensorFlow."""

import dataclasses
import pickle
from collections import Counter

import numpy as np
import pytest

from bert_jax.text import tfds as tfds_text
from bert_jax.text.sources import make_source
from tests.text import tfds_sets
from tests.text.test_sources import CONFIG

TEXTS = [f"Record {i} is here.\n\nIt has\r\ntwo or three lines." for i in range(300)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A data directory of tensorflow-datasets with the dataset `tiny_corpus/en`."""
    records = {"train": TEXTS, "test": TEXTS, "bad": ["One.\nA NUL\0."]}
    tfds_sets.build(
        folder := tmp_path_factory.mktemp("tfds"),
        "TinyCorpus",
        lambda kinds: {"text": kinds.Text(), "number": kinds.Scalar(np.int32)},
        {
            split: [{"text": text, "number": number} for number, text in enumerate(texts)]
            for split, texts in records.items()
        },
        config="en",
    )
    return folder


@pytest.fixture
def read(data_dir, monkeypatch):
    """Reads all documents of a source, and what was counted."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))

    def read(source: str, **changes):
        source = make_source(dataclasses.replace(CONFIG, source=source, **changes))
        source = pickle.loads(pickle.dumps(source))
        counts = Counter()
        documents = [d for chunk in source.chunks() for d in source.read(chunk, counts)]
        return documents, +counts

    yield read
    tfds_text.open_builder.cache_clear()
    tfds_text.open_split.cache_clear()


EXPECTED = sorted([f"Record {i} is here.", "It has", "two or three lines."] for i in range(300))


def test_every_record_is_a_document(read):
    documents, counts = read("tfds:tiny_corpus/en")
    assert sorted(documents) == EXPECTED
    assert counts == {"crlf_lines": 300}


def test_documents_do_not_depend_on_the_chunks(read, monkeypatch):
    whole, _ = read("tfds:tiny_corpus/en")
    monkeypatch.setattr(tfds_text, "RANGE_BYTES", 400)
    monkeypatch.setattr(tfds_text, "_BATCH", 3)
    assert read("tfds:tiny_corpus/en")[0] == whole
    chunks = make_source(dataclasses.replace(CONFIG, source="tfds:tiny_corpus/en")).chunks()
    assert len(chunks) > 10 and chunks[0] == range(0, chunks[1].start)


def test_a_split_may_be_a_slice_and_a_name_a_folder(read, data_dir):
    whole, _ = read("tfds:tiny_corpus/en[test]")
    assert read("tfds:tiny_corpus/en[test[:10%]]")[0] == whole[:30]
    assert read(f"tfds:{data_dir}/tiny_corpus/en/1.0.0/[test]")[0] == whole


@pytest.mark.parametrize(
    "source, changes, message",
    [
        ("tfds:", {}, "Invalid name tfds:"),
        ("tfds:/tmp", {}, "not a prepared dataset: it has no dataset_info.json"),
        ("tfds:no_such/en", {}, "tfds:no_such/en is not prepared in .*: prepare it with .*array"),
        ("tfds:tiny_corpus/en[dev]", {}, "no split 'dev'; it has bad, test, train"),
        ("tfds:tiny_corpus/en", {"field": "body"}, "data.field='body' .* has number, text"),
        (
            "tfds:tiny_corpus/en",
            {"field": "number"},
            "record 0: data.field='number' is a .*not text",
        ),
    ],
)
def test_errors(read, source, changes, message):
    with pytest.raises(ValueError, match=message):
        read(source, **changes)


def test_a_format_of_tensorflow_says_how_to_prepare_another(read, data_dir, tmp_path):
    folder = tmp_path / "tiny_corpus" / "1.0.0"
    folder.mkdir(parents=True)
    for path in (data_dir / "tiny_corpus" / "en" / "1.0.0").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(
        ValueError, match="is stored as tfrecord, which only TensorFlow reads: prepare"
    ):
        read(f"tfds:{folder}")


def test_malformed_text_is_repaired_or_named_by_its_record(read):
    source = "tfds:tiny_corpus/en[bad]"
    assert read(source, on_bad_text="replace") == ([["One.", "A NUL."]], {"nul_lines": 1})
    with pytest.raises(ValueError, match=r"tiny_corpus/en\[bad\] record 0, line 2: a NUL byte"):
        read(source, on_bad_text="error")
