"""The manifest: files are complete and unchanged, and opened by split and sequence length."""

import hashlib
import random

import numpy as np
import pytest

from bert_jax.data.corpus.manifest import NAME, VERSION, Manifest


def test_the_rows_and_the_tokenizer_are_found(manifest):
    assert manifest.splits == ("train",)
    assert manifest.sequence_lengths == (16,)
    assert manifest.num_rows("train", 16) == len(manifest.rows("train", 16)) == 300
    assert manifest.statistics("train", 16) == {"rows": 300}
    tokenizer = manifest.tokenizer()
    batch = manifest.rows("train", 16).read(np.array([0, 299]))
    assert [tokenizer.pieces[i] for i in batch["input_ids"][0, :8]] == (
        "[CLS] a b c [SEP] a b [SEP]".split()
    )
    assert batch["next_sentence_labels"].tolist() == [[0], [1]]


def test_what_is_not_there_is_refused(manifest, tmp_path):
    for split, length in (("validation", 16), ("train", 32)):
        with pytest.raises(ValueError, match="splits train at sequence lengths 16"):
            manifest.rows(split, length)
    with pytest.raises(ValueError, match="has no prepared data .no manifest.json."):
        Manifest.load(str(tmp_path / "nowhere"))


def test_verify_reads_everything(manifest):
    files = manifest.content["splits"]["train"]["sequence_lengths"]["16"]["files"]
    files = [manifest.content["tokenizer"], *files]
    assert manifest.verify() == sum(file["bytes"] for file in files)


@pytest.mark.parametrize("name", ["first", "second", "vocab.txt"])
def test_a_flipped_bit_is_found_and_the_file_named(name, manifest, tmp_path):
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 16
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{tmp_path / name} is corrupt: its SHA-256"):
        manifest.verify()


def test_a_truncated_or_missing_file_is_found_on_opening(manifest, tmp_path):
    data = (tmp_path / "second").read_bytes()
    (tmp_path / "second").write_bytes(data[:-1])
    message = f"{tmp_path / 'second'} has {len(data) - 1} bytes instead of {len(data)}"
    with pytest.raises(ValueError, match=message):
        manifest.rows("train", 16)
    (tmp_path / "second").unlink()
    with pytest.raises(ValueError, match="second is missing: delete manifest.json in its folder"):
        manifest.rows("train", 16)
    with pytest.raises(ValueError, match="second is missing"):
        manifest.verify()


def test_another_vocabulary_is_refused(manifest, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text(path.read_text().replace("a\nb", "b\na"))
    with pytest.raises(ValueError, match="is not the vocabulary of the data in its folder"):
        manifest.tokenizer()


@pytest.mark.parametrize("content", ["", "{}", '{"version": 1', "[]"])
def test_a_corrupt_manifest_is_named(content, tmp_path):
    (tmp_path / NAME).write_text(content)
    with pytest.raises(ValueError, match=f"{tmp_path / NAME} is corrupt"):
        Manifest.load(str(tmp_path))


def test_any_flipped_bit_of_the_manifest_is_found(manifest, tmp_path):
    """And of its checksum, which must be there."""
    manifest.save()
    path, seal = tmp_path / NAME, tmp_path / f"{NAME}.sha256"
    assert Manifest.load(str(tmp_path)).content == manifest.content
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


def test_another_version_is_refused(manifest, tmp_path):
    Manifest(str(tmp_path), manifest.content | {"version": 99}).save()
    with pytest.raises(
        ValueError, match=f"has version 99, but this program reads version {VERSION}"
    ):
        Manifest.load(str(tmp_path))


def test_the_fingerprint_is_that_of_the_content(manifest, tmp_path):
    assert Manifest("elsewhere", manifest.content).fingerprint == manifest.fingerprint
    other = Manifest(manifest.folder, manifest.content | {"settings": {"seed": 2}})
    assert other.fingerprint != manifest.fingerprint
