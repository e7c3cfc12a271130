"""Buckets of object stores: gs:// and s3:// addresses as folders of this machine.

An address has a working copy, a path below the user's cache folder (`copy_of`), and all of the
program reads and writes that path as any other:

    local(path)           before reading: the path itself, or a working copy brought up to date
    fetch(paths)          the same for what `local` leaves in the bucket: shards and checkpoints
    publish(path, source) after writing, called by files/atomic.py: uploads a complete file
    remove, move, names   change or list both

An object appears whole or not at all, and `publish` comes before the file gets its name here, so a
bucket never lacks what the copy claims to have. The bucket is what counts: a copy is only taken for
current if the tag of its object (the ETag) is the one that was seen last. Unfinished work
(`*.part`, `unfinished/`) stays on this machine.

Operations that fail for reasons that pass are repeated for five minutes, with growing pauses.
"""

import concurrent.futures
import contextlib
import functools
import logging
import os
import pathlib
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from bert_jax.files.errors import UserError

EXTRAS = {"gs": "gcs", "s3": "s3"}
# What never leaves the machine: it is of no use without the program that writes it.
UNFINISHED = "unfinished"
_LOCAL = re.compile(rf"(?:^|/)(?:{UNFINISHED}|[^/]*\.part|[^/]*\.unfinished(?:\.json)?)(?:/|$)")
# What is fetched when it is needed, relative to the folder that is brought up to date.
_LATER = re.compile(r"(?:^|/)checkpoints/[^/]+/|\.array_record$")
_ADDRESS = re.compile(rf"({'|'.join(EXTRAS)})://([^/]+)/+(.*[^/])/*")
# Stores that are not supported, also after a prefix such as "text:".
_OTHER_ADDRESS = re.compile(r"(?:.*:)?(az|abfss?|hdfs)://.*", re.DOTALL)
_PATIENCE_SECONDS, _LONGEST_PAUSE = 300.0, 30.0
_CONNECTIONS = 8
# Packages whose errors are those of the store and the network, which fsspec's classes pass on.
_CLIENTS = {"aiohttp", "botocore", "gcsfs", "google", "requests", "urllib3"}
_NO_CREDENTIALS = "NoCredentialsError PartialCredentialsError DefaultCredentialsError RefreshError"


def is_address(path: str | os.PathLike) -> bool:
    """Returns whether a path is the address of a bucket, or of something in it."""
    return os.fspath(path).startswith(tuple(f"{scheme}://" for scheme in EXTRAS))


def check_scheme(name: str, text: str) -> None:
    """Refuses the address of an object store that is not supported.

    Args:
      name: what the text was given as, for the message.
      text: a path, an address, or any other text.

    Raises:
      UserError: it is such an address.
    """
    if match := _OTHER_ADDRESS.fullmatch(text):
        raise UserError(
            f"{name}={text}: {match[1]}:// is not read or written: mount the bucket as a folder,"
            " or copy it, and give that path."
        )


def copy_of(address: str) -> str:
    """Returns the path of the working copy of an address, which may not exist.

    Raises:
      UserError: the address names no folder or file in a bucket.
    """
    if not (match := _ADDRESS.fullmatch(address)):
        raise UserError(f"{address} names a whole bucket: give a folder in it, {address}/NAME.")
    return os.path.join(_root(), *match.groups())


def address_of(path: str | os.PathLike) -> str:
    """Returns the address that a path is the working copy of; empty: it is not one."""
    path, root = os.path.abspath(path), _root() + os.sep
    if not path.startswith(root):
        return ""
    scheme, _, key = path.removeprefix(root).partition(os.sep)
    return f"{scheme}://{key}" if scheme in EXTRAS and not _LOCAL.search(key) else ""


def shown(text: str) -> str:
    """Returns a text with addresses in place of the paths of their working copies."""
    if _root() not in text:
        return text
    return re.sub(rf"{re.escape(_root())}/({'|'.join(EXTRAS)})/", r"\1://", text)


def local(path: str) -> str:
    """Returns a path to read: `path` itself, or the working copy of an address.

    What the bucket has below the address is copied once in a process, but for shards and
    checkpoints. An address may have wildcards.

    Raises:
      UserError: the bucket does not exist or cannot be reached, or a package is missing.
    """
    if not (address := path if is_address(path) else address_of(path)):
        return path
    copy = copy_of(address)
    _bring_once(address)
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    return copy


def refresh(path: str) -> None:
    """Brings the working copy at a path up to date again, since another machine has written."""
    if address := address_of(path):
        _bring(address)


def forget() -> None:
    """Forgets which copies this process has brought up to date, and its connections."""
    _bring_once.cache_clear()
    _file_system.cache_clear()


def fetch(paths: Iterable[str | os.PathLike]) -> None:
    """Brings files and folders of a working copy up to date, whatever they are."""
    for address in filter(None, map(address_of, paths)):
        _bring(address, everything=True)


def publish(path: str | os.PathLike, source: str | os.PathLike = "") -> None:
    """Uploads a file or folder, if its path is in a working copy.

    Args:
      path: of the working copy.
      source: where the complete file or folder is; empty: at `path`.
    """
    if not (address := address_of(path)):
        return
    source = pathlib.Path(source or path)
    if not source.is_dir():
        _put(address, source)
        return
    names = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
    _all(lambda name: _put(f"{address}/{name}", source / name), names)


def remove(path: str | os.PathLike) -> None:
    """Removes a file or folder, if it is there, first from the bucket."""
    if address := address_of(path):
        _all(functools.partial(_remove, address), _objects(address))
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        pathlib.Path(path).unlink(missing_ok=True)


def move(path: str | os.PathLike, target: str | os.PathLike) -> None:
    """Gives a folder another name; in a bucket, object by object."""
    if address := address_of(path):
        new = _key(address_of(target))
        for key in _objects(address):
            target_key = new + key.removeprefix(_key(address))
            _attempt(address, lambda fs, key=key, to=target_key: fs.cp_file(key, to))
            _remove(address, key)
    if os.path.exists(path):
        os.rename(path, target)


def names(folder: str | os.PathLike) -> set[str]:
    """Returns the names of what is in a folder, here or in its bucket; empty if there is none."""
    found = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    if address := address_of(folder):
        start = len(_key(address)) + 1
        found |= {key[start:].partition("/")[0] for key in _objects(address)}
    return found


def claim(path: str | os.PathLike, content: bytes) -> bytes:
    """Creates an object unless it exists, and returns its content, whoever has created it.

    Of two programs on two machines one gets the other's content. Outside of working copies,
    returns `content`.
    """
    if not (address := address_of(path)):
        return content

    def create(fs: Any) -> bytes:
        while True:
            with contextlib.suppress(FileExistsError):
                if not fs.exists(_key(address)):
                    fs.pipe_file(_key(address), content, mode="create")
            # Whoever has created it may have removed it since.
            with contextlib.suppress(FileNotFoundError):
                return fs.cat_file(_key(address))

    return _attempt(address, create)


# ---------------------------------------------------------------------------- copies and objects


def _root() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(os.path.abspath(os.path.expanduser(home)), "bert_jax", "buckets")


def _copy(scheme: str, key: str) -> str:
    return os.path.join(_root(), scheme, key)


def _key(address: str) -> str:
    return address.partition("://")[2]


def _tag_path(copy: str) -> pathlib.Path:
    """Returns the file with the tag of the object that a file is a copy of."""
    return pathlib.Path(_root(), "tags", os.path.relpath(copy, _root()) + ".tag")


def _tag(info: dict[str, Any]) -> str:
    return str(info.get("ETag") or info.get("etag") or info.get("generation"))


def _seen_tag(copy: str) -> str:
    with contextlib.suppress(OSError):
        return _tag_path(copy).read_text()
    return ""


def _record(copy: str, info: dict[str, Any]) -> None:
    path = _tag_path(copy)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    part.write_text(_tag(info))
    part.replace(path)


@functools.cache
def _bring_once(address: str) -> None:
    _bring(address)


def _bring(address: str, everything: bool = False) -> None:
    """Downloads what has changed, and removes what the bucket had and has no more.

    Other machines may change the bucket meanwhile: what is gone when its turn comes is not there.
    """
    scheme, _, key = address.partition("://")
    if wildcard := re.search(r"[*?[]", key):
        key = key[: wildcard.start()].rpartition("/")[0]
    copies = {_copy(scheme, name): i for name, i in _objects(f"{scheme}://{key}").items()}
    folder = _copy(scheme, key)

    def is_wanted(copy: str) -> bool:
        return everything or not _LATER.search(copy.removeprefix(folder))

    def download(copy: str) -> None:
        info = copies[copy]
        if os.path.exists(copy) and _seen_tag(copy) == _tag(info):
            return
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        part = f"{copy}.{uuid.uuid4().hex}.part"
        try:
            if not _attempt(address, lambda fs: _get(fs, info["name"], part)):
                del copies[copy]
                return
            os.replace(part, copy)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(part)
        _record(copy, info)

    _all(download, list(filter(is_wanted, copies)))
    tags = pathlib.Path(_root(), "tags")
    for tag in (tags / scheme / key).rglob("*.tag"):
        copy = os.path.join(_root(), tag.relative_to(tags).with_suffix(""))
        if copy not in copies:
            _forget(copy)


def _get(fs: Any, key: str, path: str) -> bool:
    """Downloads an object; returns whether it was there."""
    try:
        fs.get_file(key, path)
    except FileNotFoundError as error:
        if _is_of_this_disk(error):
            raise
        return False
    return True


def _forget(copy: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _tag_path(copy).unlink()
        os.remove(copy)


def _objects(address: str) -> dict[str, dict[str, Any]]:
    """Returns what is known of each object at or below an address, by its key with the bucket."""

    def find(fs: Any) -> dict[str, dict[str, Any]]:
        found = fs.find(_key(address), detail=True)
        bucket = _key(address).partition("/")[0]
        if not found and not fs.exists(bucket):
            raise FileNotFoundError(bucket)
        return {key: {**info, "name": key} for key, info in found.items() if key[-1] != "/"}

    return _attempt(address, find)


def _put(address: str, source: pathlib.Path) -> None:
    def put(fs: Any) -> dict[str, Any]:
        fs.put_file(os.fspath(source), _key(address))
        info = fs.info(_key(address))
        if info["size"] != (size := source.stat().st_size):
            raise OSError(f"the object has {info['size']} bytes instead of {size}")
        return info

    _record(copy_of(address), _attempt(address, put))


def _remove(address: str, key: str) -> None:
    def rm(fs: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(key)

    _attempt(address, rm)
    with contextlib.suppress(FileNotFoundError):
        _tag_path(_copy(address.partition("://")[0], key)).unlink()


def _all(function: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Calls a function for each item, some at a time; raises the first error."""
    with concurrent.futures.ThreadPoolExecutor(_CONNECTIONS) as threads:
        list(threads.map(function, items))


# ---------------------------------------------------------------------------- failures


def _attempt(address: str, operation: Callable[[Any], Any]) -> Any:
    """Returns what an operation on the file system of an address returns.

    Raises:
      UserError: it is refused, or still fails after some minutes.
    """
    scheme, _, key = address.partition("://")
    pause, end = 1.0, time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return operation(_file_system(scheme))
        except ImportError:
            raise UserError(
                f"{address}: {scheme}:// needs a package: pip install 'bert_jax[{EXTRAS[scheme]}]'"
            ) from None
        except FileNotFoundError as error:
            if _is_of_this_disk(error):
                raise
            bucket = f"{scheme}://{key.partition('/')[0]}"
            raise UserError(
                f"{address}: there is no bucket {bucket}, or the object has just been deleted."
            ) from None
        except Exception as error:
            if _is_of_this_disk(error) or not _is_of_the_network(error):
                raise
            if why := _refusal(error):
                raise UserError(f"{address}: {why} ({_line(error)}).") from error
            if time.monotonic() > end:
                raise UserError(
                    f"{address} could not be reached for {_PATIENCE_SECONDS:.0f} s"
                    f" ({_line(error)}): run the command again to go on from here."
                ) from error
            from absl import logging as absl_logging  # some commands start without it

            absl_logging.warning("%s: %s: trying again in %.0f s", address, _line(error), pause)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


@functools.cache
def _file_system(scheme: str) -> Any:
    """Returns fsspec's file system, which threads share; it does not remember listings."""
    import fsspec

    # It prints the traceback of each failure that it repeats.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)


def _refusal(error: BaseException) -> str:
    """Returns why an operation will fail again; empty if it may not."""
    seen: BaseException | None = error
    while seen is not None:
        if type(seen).__name__ in _NO_CREDENTIALS.split() or getattr(seen, "code", 0) == 401:
            return "no credentials were found, or they are not valid"
        if isinstance(seen, PermissionError) or getattr(seen, "code", 0) == 403:
            return "these credentials do not allow this"
        if type(seen).__name__ == "ParamValidationError":
            return "this is not a valid address"
        seen = seen.__cause__ or seen.__context__
    return ""


def _is_of_the_network(error: Exception) -> bool:
    """Whether an error is of an object store or of the way to it, and not a defect here."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or package in _CLIENTS


def _is_of_this_disk(error: Exception) -> bool:
    """Whether an error is of a path here, such as a full disk, and not of the network."""
    return isinstance(error, OSError) and bool(error.filename)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
