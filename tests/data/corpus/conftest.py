"""Text to prepare, and a folder of prepared data."""

import dataclasses
import pathlib

import numpy as np
import pytest

from bert_jax.data.corpus import documents, shards
from bert_jax.data.corpus.blocks import RowFormat
from bert_jax.data.corpus.manifest import VERSION, Manifest
from bert_jax.data.corpus.pairs import PAIR
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.corpus.shards import Records, write_shard
from bert_jax.files.checksums import file_sha256
from bert_jax.text.tokenizers import load_tokenizer
from tests.data.corpus.corpora import make_config, quiet, write_text

VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "\n".join("abcdefgh") + "\n"
FORM = RowFormat(16, 1, 0, vocab_size=13, pad_id=0, cls_id=2, sep_id=3, end_id=3)


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    write_text(folder, 60)
    return folder


@pytest.fixture
def small_units(monkeypatch):
    """Many units and files, although the text is small. Only this process sees it."""
    monkeypatch.setattr(documents, "UNIT_TOKENS", 2000)
    monkeypatch.setattr(shards, "TOKENS_PER_FILE", 1 << 14)


@pytest.fixture(scope="session")
def prepared(text, tmp_path_factory) -> Manifest:
    """The data of `make_config(text)`, in many units and files; tests leave them as they are."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "UNIT_TOKENS", 2000)
        patch.setattr(shards, "TOKENS_PER_FILE", 1 << 14)
        return prepare(make_config(text), str(folder), 1, quiet)


class Letters:
    """A token store that repeats the letters of the vocabulary."""

    def tokens(self, start: int, length: int) -> bytes:
        return (5 + (start + np.arange(length)) % 8).astype("<u2").tobytes()


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    """A folder of data with two shards of one split."""
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    pairs = np.array([(i, 3, 2 * i, 2, i % 2, 0) for i in range(300)], PAIR)
    records = tmp_path / "records"
    pairs.tofile(records)
    files = []
    for name, rows in (("first", range(256)), ("second", range(256, 300))):
        path = str(tmp_path / name)
        file = write_shard(Letters(), Records(str(records), PAIR), rows, FORM, path)  # pyright: ignore
        del file["counts"]
        files.append(file)
    records.unlink()
    vocabulary = str(tmp_path / "vocab.txt")
    content = {
        "version": VERSION,
        "settings": {"source": "text/*.txt"},
        "source": {},
        "tokenizer": {
            "name": "vocab.txt",
            "bytes": len(VOCABULARY),
            "sha256": file_sha256(vocabulary),
            "fingerprint": load_tokenizer(vocabulary, lowercase=True).fingerprint,
            "lowercase": True,
        },
        "corpus": {},
        "formats": {"16": dataclasses.asdict(FORM)},
        "splits": {
            "train": {"sequence_lengths": {"16": {"files": files, "statistics": {"rows": 300}}}}
        },
    }
    Manifest(str(tmp_path), content).save()
    return Manifest.load(str(tmp_path))
