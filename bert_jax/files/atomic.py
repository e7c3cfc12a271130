"""Durable writes: after a crash or a power cut, the old file or the new one is there, complete.

What is written into the working copy of a bucket (`files/buckets.py`) is uploaded before it gets
its name; a file that grows, whenever it is synced.

Every file that outlives its process is written by a function of this module.

The temporary file is `path.part`, in the folder of `path`. Its contents are flushed to disk
(fsync) before it is renamed to `path`, and the folder is flushed after that: without the first, a
power cut may leave an empty file under the new name; without the second, it may undo the rename.

For a symbolic link, the target is replaced, not the link. What exists but is not a regular file,
such as a device or a named pipe, is written to.
"""

import contextlib
import contextvars
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from bert_jax.files import buckets

# Between the name of a file and that of its temporary file.
_OWNER = contextvars.ContextVar("owner", default="")
# Descriptors of this process: a file behind one of them stays, since others write to it.
_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/")


@contextlib.contextmanager
def own_parts() -> Iterator[None]:
    """Gives temporary files names that no other program, thread or attempt uses, in the block.

    For work that may be done twice at the same time: two writers of one temporary file would mix
    their bytes. Temporary files of killed programs then remain until somebody removes `*.part`.
    """
    token = _OWNER.set(f".{uuid.uuid4().hex}")
    try:
        yield
    finally:
        _OWNER.reset(token)


def is_stream(path: str | os.PathLike) -> bool:
    """Returns whether what is at `path` is written to, not replaced: a device, a pipe, a socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    is_descriptor = os.path.abspath(path).startswith(_DESCRIPTORS)
    return is_descriptor or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def destination(path: str | os.PathLike) -> str:
    """Returns the path that a write to `path` replaces: for a link, its target."""
    return os.path.realpath(path) if os.path.islink(path) else os.fspath(path)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary path to write to; at the end of the block the file is moved to `path`.

    The block must close the file. If the block raises, `path` is unchanged and the temporary file
    is removed. If the process is killed, the temporary file may remain; the next writer of `path`
    overwrites it.
    """
    if is_stream(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = os.path.join(folder, "part")
            yield temporary
            move_file(temporary, path)
        return
    path = destination(path)
    temporary = f"{path}{_OWNER.get()}.part"
    try:
        yield temporary
        move_file(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def move_file(source: str | os.PathLike, path: str | os.PathLike) -> None:
    """Moves a complete file to `path`, replacing an existing file, on the same file system.

    It also moves a folder whose contents are on disk, if there is none at `path`. A device or a
    pipe gets the contents.
    """
    if is_stream(path):
        with open(source, "rb") as file, open(path, "wb") as stream:
            shutil.copyfileobj(file, stream)
        os.remove(source)
        return
    path = destination(path)
    _fsync(os.fspath(source))
    buckets.publish(path, source)
    os.replace(source, path)
    _fsync(_parent(path))


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[str]:
    """Yields a new, empty folder to fill; at the end of the block it is moved to `path`.

    All files and folders below it are flushed to disk first. If the block raises, the temporary
    folder is removed.
    """
    path = destination(os.path.normpath(path))
    temporary = f"{path}{_OWNER.get()}.part"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        for folder, folders, names in os.walk(temporary, topdown=False):
            for name in (*folders, *names):
                _fsync(os.path.join(folder, name))
        move_file(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_bytes(path: str | os.PathLike, data: bytes) -> None:
    """Writes a file."""
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file of UTF-8; no newline is added."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike, value: Any, sort_keys: bool = True) -> None:
    """Writes a file of JSON. With sorted keys, equal values give equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=sort_keys, ensure_ascii=False)
    write_text(path, f"{text}\n")


def read_json(path: str | os.PathLike) -> Any:
    """Returns the value in a file of JSON."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_json_lines(path: str | os.PathLike) -> list[Any]:
    """Reads a JSON-lines file that may still grow; returns [] if it does not exist.

    An incomplete line, which a power cut may leave, ends it.
    """
    rows = []
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        for line in file:
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


class AppendFile:
    """A text file of UTF-8 that grows line by line; created if it does not exist.

    A line is handed to the operating system as soon as it is written: other programs see it, and it
    survives the end of the process. After a power cut, the lines written since the last `sync` may
    be missing, and the last line may be incomplete.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = os.fspath(path)
        self._file = open(self._path, "a", encoding="utf-8")
        _fsync(_parent(self._path))

    def __enter__(self) -> "AppendFile":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def write_line(self, line: str) -> None:
        """Writes a line and the newline after it."""
        self._file.write(f"{line}\n")
        self._file.flush()

    def sync(self) -> None:
        """Returns when all lines are on disk."""
        os.fsync(self._file.fileno())
        buckets.publish(self._path)

    def close(self) -> None:
        """Syncs and closes the file; a second call does nothing."""
        if not self._file.closed:
            self.sync()
            self._file.close()


def _parent(path: str) -> str:
    return os.path.dirname(path) or "."


def _fsync(path: str) -> None:
    """Returns when a file's contents, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
