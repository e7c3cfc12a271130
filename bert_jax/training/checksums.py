"""SHA-256 sums of every byte of a checkpoint, in a list beside its folder, with its metrics."""

import hashlib
import json
import pathlib
from typing import Any


def checksum_file(folder: pathlib.Path) -> pathlib.Path:
    return folder.with_name(folder.name + ".sha256.json")


def _checksums(folder: pathlib.Path) -> dict[str, str]:
    sums = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        sums[str(path.relative_to(folder))] = digest
    return sums


def write_checksums(folder: pathlib.Path, metrics: dict[str, float]) -> None:
    path = checksum_file(folder)
    temporary = path.with_name(path.name + ".tmp")
    content = {"metrics": metrics, "files": _checksums(folder)}
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def find_damage(folder: pathlib.Path) -> str:
    """What is wrong with a checkpoint's files, in a few words; empty if nothing is."""
    try:
        expected = json.loads(checksum_file(folder).read_text())["files"]
    except (ValueError, KeyError, TypeError, OSError):
        return "its list of checksums cannot be read"
    found = _checksums(folder)
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not in its list of checksums"
        if found[name] != expected[name]:
            return f"{name} has another checksum"
    return ""


def fingerprint(folder: pathlib.Path) -> str:
    """SHA-256 of a checkpoint's list of checksums."""
    return hashlib.sha256(checksum_file(folder).read_bytes()).hexdigest()


def read_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """The metrics that a checkpoint was sealed with; empty if it was not evaluated."""
    return json.loads(checksum_file(folder).read_text())["metrics"]
