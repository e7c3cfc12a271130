"""Checksums of files."""

import hashlib

from bert_jax.files.checksums import file_sha256


def test_the_checksum_is_that_of_all_bytes(tmp_path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(data)
    assert file_sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()
