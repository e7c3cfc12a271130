"""Buckets of object stores: gs:// and s3:// addresses as folders of this machine.

An address has a working copy, a path below the user's cache folder (`copy_of`), and all of the
program reads and writes that path like any other:

    local(path)           before reading: the path itself, or a working copy brought up to date
    fetch(paths)          the same for what `local` leaves in the bucket: shards and checkpoints
    publish(path, source) after writing, called by files/atomic.py: uploads a complete file
    remove, move, names   change or list both

An object appears whole or not at all, and `publish` comes before the file gets its name here, so a
bucket never lacks what the copy claims to have. The bucket is authoritative: a copy counts as
current only if the tag of its object (the ETag) is the one that was seen last. Unfinished work
(`*.part`, `unfinished/`) stays on this machine.

Operations that fail for transient reasons are retried for five minutes, with growing pauses.
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
from bert_jax.files.user_cache import cache_folder

EXTRAS = {"gs": "gcs", "s3": "s3"}
# What never leaves the machine: it is of no use without the program that writes it.
UNFINISHED = "unfinished"
_LOCAL = re.compile(rf"(?:^|/)(?:{UNFINISHED}|[^/]*\.part)(?:/|$)")
# What is fetched when it is needed, relative to the folder that is brought up to date.
_LATER = re.compile(r"(?:^|/)checkpoints/[^/]+/|\.array_record$")
_ADDRESS = re.compile(rf"({'|'.join(EXTRAS)})://([^/]+/+.*[^/])/*", re.DOTALL)
# Stores that are not supported, also after a prefix such as "text:".
_OTHER_ADDRESS = re.compile(r"(?:.*:)?(az|abfss?|hdfs)://.*", re.DOTALL)
_RETRY_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE = 300.0, 1.0, 30.0
_CONNECTIONS = 8
_logger = logging.getLogger(__name__)
# Packages whose errors are those of the store and the network, which fsspec's classes pass on.
_CLIENTS = {"aiohttp", "botocore", "gcsfs", "google", "requests", "urllib3"}
_NO_CREDENTIALS = "NoCredentialsError PartialCredentialsError DefaultCredentialsError RefreshError"


class _NoObjectError(UserError):
    """The bucket or the object does not exist."""


def check_scheme(name: str, text: str) -> None:
    """Refuses the address of an object store that is not supported.

    Args:
      name: name of the flag or field, for the message.
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
    """Replaces local cache paths in a text by bucket addresses."""
    return re.sub(rf"{re.escape(_root())}/({'|'.join(EXTRAS)})/", r"\1://", text)


def local(path: str) -> str:
    """Returns a path to read: `path` itself, or the working copy of an address.

    What the bucket has below the address is copied once per process, except for shards and
    checkpoints. An address may have wildcards.

    Raises:
      UserError: the bucket does not exist or cannot be reached, or a package is missing.
    """
    is_address = path.startswith(tuple(f"{scheme}://" for scheme in EXTRAS))
    if not (address := path if is_address else address_of(path)):
        return path
    copy = copy_of(address)
    _download_once(address)
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    return copy


def refresh(path: str) -> None:
    """Brings the working copy at a path up to date again, since another machine has written."""
    if address := address_of(path):
        _download(address)


def forget() -> None:
    """Forgets which copies this process has brought up to date, and its connections."""
    _download_once.cache_clear()
    _file_system.cache_clear()


def fetch(paths: Iterable[str | os.PathLike]) -> None:
    """Brings files and folders of a working copy up to date, whatever they are."""
    for address in filter(None, map(address_of, paths)):
        _download(address, everything=True)


def publish(path: str | os.PathLike, source: str | os.PathLike = "") -> None:
    """Uploads a file or folder, if its path is in a working copy.

    Args:
      path: path of the working copy.
      source: the complete file or folder; empty: `path`.
    """
    if not (address := address_of(path)):
        return
    source = pathlib.Path(source or path)
    if not source.is_dir():
        _upload(address, source)
        return
    files = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
    _for_all(lambda name: _upload(f"{address}/{name}", source / name), files)


def remove(path: str | os.PathLike) -> None:
    """Removes a file or folder, if it is there, first from the bucket."""
    if address := address_of(path):
        _for_all(_remove_object, _objects(address))
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        pathlib.Path(path).unlink(missing_ok=True)


def move(path: str | os.PathLike, target: str | os.PathLike) -> None:
    """Gives a folder another name; in a bucket, object by object."""
    if address := address_of(path):
        for name in _objects(address):
            new_name = address_of(target) + name.removeprefix(address)
            _attempt(address, lambda fs, pair=(name, new_name): fs.cp_file(*pair))
            _remove_object(name)
    if os.path.exists(path):
        os.rename(path, target)


def names(folder: str | os.PathLike) -> set[str]:
    """Returns the names of what is in a folder, here or in its bucket; empty if there is none."""
    found = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    if address := address_of(folder):
        below = (name.removeprefix(f"{address}/") for name in _objects(address))
        found |= {name.partition("/")[0] for name in below}
    return found


def claim(path: str | os.PathLike, content: bytes) -> bytes:
    """Creates an object unless it exists, and returns its content, whoever created it.

    If two programs on two machines call it, one gets the other's content. Outside of working
    copies, returns `content`.
    """
    if not (address := address_of(path)):
        return content

    def create(fs: Any) -> bytes:
        while True:
            with contextlib.suppress(FileExistsError):
                if not fs.exists(address):
                    fs.pipe_file(address, content, mode="create")
            # Whoever created it may have removed it since.
            with contextlib.suppress(FileNotFoundError):
                return fs.cat_file(address)

    return _attempt(address, create)


# ---------------------------------------------------------------------------- copies and objects


def _root() -> str:
    return cache_folder("buckets")


def _tag_file(name: str) -> pathlib.Path:
    return pathlib.Path(_root(), "tags", name.replace("://", "/") + ".tag")


def _tag(info: dict[str, Any]) -> str:
    return str(info.get("ETag") or info.get("etag") or info.get("generation"))


def _write_tag(name: str, tag: str) -> None:
    path = _tag_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    part.write_text(tag)
    part.replace(path)


def _download(address: str, everything: bool = False) -> None:
    """Downloads what has changed, and removes what the bucket had but no longer has.

    Other machines may change the bucket meanwhile: what is gone when its turn comes is not there.
    """
    if wildcard := re.search(r"[*?[]", address):
        address = address[: wildcard.start()].rpartition("/")[0]
    objects = _objects(address)

    def download(name: str) -> None:
        copy, tag = copy_of(name), _tag_file(name)
        if os.path.exists(copy) and tag.exists() and tag.read_text() == objects[name]:
            return
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        part = f"{copy}.{uuid.uuid4().hex}.part"
        try:
            _attempt(address, lambda fs: fs.get_file(name, part))
            os.replace(part, copy)
            _write_tag(name, objects[name])
        except _NoObjectError:
            del objects[name]
        finally:
            pathlib.Path(part).unlink(missing_ok=True)

    wanted = [x for x in objects if everything or not _LATER.search(x.removeprefix(address))]
    _for_all(download, wanted)
    scheme, _, key = address.partition("://")
    tags = pathlib.Path(_root(), "tags", scheme)
    for tag in (tags / key).rglob("*.tag"):
        name = f"{scheme}://{tag.relative_to(tags).with_suffix('')}"
        if name not in objects:
            tag.unlink(missing_ok=True)
            pathlib.Path(copy_of(name)).unlink(missing_ok=True)


_download_once = functools.cache(_download)


def _objects(address: str) -> dict[str, str]:
    """Returns the tag of each object at or below an address, by the object's address."""
    scheme, _, key = address.partition("://")

    def find(fs: Any) -> dict[str, str]:
        found, bucket = fs.find(address, detail=True), key.partition("/")[0]
        if not found and not fs.exists(bucket):
            raise FileNotFoundError(bucket)
        return {f"{scheme}://{k}": _tag(info) for k, info in found.items() if k[-1] != "/"}

    return _attempt(address, find)


def _upload(address: str, source: pathlib.Path) -> None:
    def put(fs: Any) -> str:
        fs.put_file(os.fspath(source), address)
        info = fs.info(address)
        if info["size"] != (size := source.stat().st_size):
            raise OSError(f"the object has {info['size']} bytes instead of {size}")
        return _tag(info)

    _write_tag(address, _attempt(address, put))


def _remove_object(name: str) -> None:
    with contextlib.suppress(_NoObjectError):
        _attempt(name, lambda fs: fs.rm_file(name))
    _tag_file(name).unlink(missing_ok=True)


def _for_all(function: Callable[[Any], Any], items: Iterable[Any]) -> None:
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
    pause, end = _FIRST_PAUSE, time.monotonic() + _RETRY_SECONDS
    while True:
        try:
            return operation(_file_system(scheme))
        except ImportError:
            raise UserError(
                f"{address}: {scheme}:// needs a package: pip install 'bert_jax[{EXTRAS[scheme]}]'"
            ) from None
        except Exception as error:
            package = type(error).__module__.partition(".")[0]
            is_of_disk = isinstance(error, OSError) and error.filename
            if is_of_disk or not (isinstance(error, OSError) or package in _CLIENTS):
                raise  # an error of a path here, such as a full disk, or a defect
            line = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            if isinstance(error, FileNotFoundError):
                bucket = f"{scheme}://{key.partition('/')[0]}"
                raise _NoObjectError(
                    f"{address}: there is no bucket {bucket}, or the object has just been deleted."
                ) from None
            if why := _refusal(error):
                raise UserError(f"{address}: {why} ({line}).") from error
            if time.monotonic() > end:
                raise UserError(
                    f"{address} could not be reached for {_RETRY_SECONDS:.0f} s ({line}): run"
                    " the command again to go on from here."
                ) from error
            _logger.warning("%s: %s: trying again in %.0f s", address, line, pause)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


@functools.cache
def _file_system(scheme: str) -> Any:
    """Returns fsspec's file system, which threads share; it does not remember listings."""
    import fsspec

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
