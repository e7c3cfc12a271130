"""SHA-256 checksums of a checkpoint's files, in a file next to its folder, with its metrics."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from bert_jax.files import buckets
from bert_jax.files.atomic import write_text
from bert_jax.files.checksums import file_sha256


def checksum_file(folder: pathlib.Path) -> pathlib.Path:
    """Returns the path of a checkpoint's list of checksums."""
    return folder.with_name(folder.name + ".sha256.json")


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of each file of a checkpoint, by its name relative to the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): file_sha256(path) for path in paths}


def write_checksums(
    folder: pathlib.Path,
    metrics: dict[str, float],
    files: dict[str, str],
    milestones: Sequence[str],
) -> None:
    """Seals a checkpoint: without its list of checksums it counts as unfinished."""
    content: dict[str, Any] = {"metrics": metrics, "files": dict(sorted(files.items()))}
    if milestones:
        content["milestones"] = list(milestones)
    write_text(checksum_file(folder), json.dumps(content, indent=1) + "\n")


def find_corruption(folder: pathlib.Path) -> str:
    """Returns a short description of what is wrong with a checkpoint's files; empty if intact."""
    try:
        expected = json.loads(checksum_file(folder).read_text())["files"]
    except (ValueError, KeyError, TypeError, OSError):
        return "its list of checksums cannot be read"
    buckets.fetch([folder])
    actual = checksums(folder)
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not in its list of checksums"
        if actual[name] != expected[name]:
            return f"{name} has another checksum"
    return ""


def read_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the metrics that a checkpoint was sealed with; empty if it was not evaluated."""
    return json.loads(checksum_file(folder).read_text())["metrics"]


def read_milestones(folder: pathlib.Path) -> list[str]:
    """Returns which of `config.checkpoint.milestones` a checkpoint was sealed as; usually none."""
    return json.loads(checksum_file(folder).read_text()).get("milestones", [])
