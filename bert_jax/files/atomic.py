"""Files and folders that are there whole or not at all."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary name to write to; after the block the file stands under `path`, on disk.

    If the block raises, nothing stands under `path`. If the machine stops, a file `path.part` may
    stay, which the next writer of `path` overwrites.
    """
    path = os.fspath(path)
    temporary = f"{path}.part"
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise
    _flush(os.path.dirname(path) or ".")


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[str]:
    """Yields a new, empty folder to fill; after the block it stands under `path`, on disk."""
    path = os.fspath(path)
    temporary = f"{path}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        for name in os.listdir(temporary):
            _flush(os.path.join(temporary, name))
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _flush(os.path.dirname(path) or ".")


def write_json(path: str | os.PathLike, value: Any, sort_keys: bool = True) -> None:
    """Writes JSON; with sorted keys equal values give equal bytes."""
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=sort_keys, ensure_ascii=False)
        file.write("\n")


def read_json(path: str | os.PathLike) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
