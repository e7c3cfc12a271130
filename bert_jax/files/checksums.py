"""Checksums of files."""

import hashlib
import os


def file_sha256(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
