"""The manifest: files are complete and unchanged, and opened by split and sequence length."""

import hashlib
import pathlib
import random
from typing import Any

import pytest

from bert_jax.data.corpus.manifest import NAME, VERSION, Manifest

FILES = [
    "train-32-00002-of-00003.array_record",
    "validation-64-00000-of-00001.array_record",
    "vocab.txt",
]


def test_rows_are_opened_by_split_and_sequence_length(prepared, tmp_path):
    assert prepared.splits == ("train", "validation")
    assert prepared.sequence_lengths == (32, 64)
    for split in prepared.splits:
        rows = prepared.rows(split, 64)
        statistics = prepared.statistics(split, 64)
        assert len(rows) == prepared.num_rows(split, 64) == statistics["rows"] > 0
    for split, length in (("test", 32), ("train", 16)):
        with pytest.raises(ValueError, match="splits train, validation at sequence lengths 32, 64"):
            prepared.rows(split, length)
    with pytest.raises(ValueError, match="has no prepared data .no manifest.json."):
        Manifest.load(str(tmp_path / "nowhere"))


def test_verify_reads_every_byte(prepared):
    files = [path for path in pathlib.Path(prepared.folder).iterdir() if path.name[0] != "."]
    data = [path for path in files if not path.name.startswith(NAME)]
    assert prepared.verify() == sum(path.stat().st_size for path in data)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_found_and_named(name, manifest):
    path = pathlib.Path(manifest.folder, name)
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 16
    cut = f"has {len(data) - 1} bytes instead of {len(data)}"
    for content, problem in (
        (bytes(damaged), "is corrupt: its SHA-256 is not the one in manifest.json"),
        (data[:-1], f"{cut}: delete manifest.json in its folder"),
        (None, "is missing: delete manifest.json in its folder and prepare"),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path} {problem}"):
            manifest.verify()
        if name.startswith("train") and "corrupt" not in problem:
            with pytest.raises(ValueError, match=f"{path} {problem}"):  # on opening
                manifest.rows("train", 32)


def test_another_vocabulary_is_refused(manifest):
    path = pathlib.Path(manifest.vocabulary_path)
    path.write_text(path.read_text().replace("ba\nco", "co\nba"))
    with pytest.raises(ValueError, match="is not the vocabulary of the data in its folder"):
        manifest.tokenizer()


def test_any_flipped_bit_of_the_manifest_is_found(prepared, tmp_path):
    """And of its checksum, which must be there."""
    manifest = Manifest(str(tmp_path), prepared.content)
    manifest.save()
    path, seal = tmp_path / NAME, tmp_path / f"{NAME}.sha256"
    assert Manifest.load(str(tmp_path)) == manifest
    assert seal.read_text() == f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {NAME}\n"
    rng = random.Random(0)
    for file in (path, seal):
        data = file.read_bytes()
        for bit in rng.sample(range(8 * len(data)), 100):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            with pytest.raises(ValueError, match=f"{path} is corrupt"):
                Manifest.load(str(tmp_path))
        file.write_bytes(data)
    seal.unlink()
    with pytest.raises(ValueError, match=f"{path} is corrupt .its SHA-256 is not the one in"):
        Manifest.load(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "is corrupt .'version'.: prepare the data again"),
        ([], "is corrupt"),
        ({"version": 99}, f"has version 99, but this program reads version {VERSION}"),
    ],
)
def test_other_content_is_refused(content: Any, message, tmp_path):
    Manifest(str(tmp_path), content).save()
    with pytest.raises(ValueError, match=f"{tmp_path / NAME} {message}"):
        Manifest.load(str(tmp_path))


def test_the_fingerprint_is_that_of_the_content(prepared):
    assert Manifest("elsewhere", prepared.content).fingerprint == prepared.fingerprint
    other = Manifest(prepared.folder, prepared.content | {"settings": {"seed": 2}})
    assert other.fingerprint != prepared.fingerprint
