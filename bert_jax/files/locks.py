"""A lock on a folder: one run works in it.

The kernel holds the lock (flock) as long as the process lives, so a killed one leaves none.
The file says which process holds it, for messages, and for what flock does not know: children that
outlive a process keep its lock, some file systems have no locks, and a node that failed keeps its
locks on a server for a while. In a bucket's working copy, the lock is for this machine only.
"""

import contextlib
import contextvars
import datetime
import fcntl
import json
import os
import pathlib
import socket
from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_jax.files.errors import UserError

NAME = "lock.json"
# The folders that this thread has locked.
_HELD = contextvars.ContextVar("held", default=frozenset())


@contextlib.contextmanager
def lock(folder: str, log: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """Locks a folder until the block ends; a nested block has the lock already.

    A new folder is removed again if it is empty at the end.

    Args:
      folder: the folder, which is created if it is missing.
      log: receives a line about a process that has ended and left its lock.

    Raises:
      UserError: another process, or another thread, works in the folder.
    """
    path = os.path.join(os.path.realpath(folder), NAME)
    if path in _HELD.get():
        yield
        return
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    file = _acquire(folder, path, log)
    token = _HELD.set(_HELD.get() | {path})
    try:
        yield
    finally:
        _HELD.reset(token)
        if _is_at(file, path):
            os.unlink(path)
        file.close()
        if is_new:
            with contextlib.suppress(OSError):  # it has files
                os.rmdir(folder)


def _acquire(folder: str, path: str, log: Callable[[str], None]) -> IO[str]:
    """Returns the lock file, locked, which names this process."""
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
        is_refused = has_locks = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_refused = False
        except BlockingIOError:
            pass
        except OSError:  # the file system has no locks
            has_locks = False
        holder = _holder(file)
        if is_refused and (holder or has_locks):
            if not _has_ended(holder):
                file.close()
                raise UserError(
                    f"{folder} is in use by {_described(holder)}: wait until it ends, or choose"
                    f" another --workdir. (If it has ended, remove {path}.)"
                )
            log(f"lock       of {_described(holder)}, which has ended, is removed")
            pathlib.Path(path).unlink(missing_ok=True)
            file.close()
        elif not _is_at(file, path):  # its holder has just ended and removed it
            file.close()
        else:
            if holder:
                log(f"lock       of {_described(holder)}, which has ended, is taken over")
            file.truncate(0)
            json.dump(_this_process(), file)
            file.flush()
            return file


def _is_at(file: IO[str], path: str) -> bool:
    """Returns whether a path is still that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "began": _began(os.getpid()),
        "since": datetime.datetime.now().astimezone().isoformat(" ", "seconds"),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "restarts": int(os.environ.get("SLURM_RESTART_COUNT", "0")),
    }


def _holder(file: IO[str]) -> dict[str, Any]:
    """Returns what `_this_process` was for the holder; {} if it has not written it yet."""
    file.seek(0)
    try:
        found = json.load(file)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.keys() >= _this_process().keys() else {}


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return "process {process} on {host} (since {since})".format_map(holder)


def _has_ended(holder: dict[str, Any]) -> bool:
    """Returns whether the process that holds a lock no longer runs, as far as known."""
    if not holder:
        return False
    ours = _this_process()
    if holder["host"] == ours["host"]:
        return _began(holder["process"]) != holder["began"]
    # SLURM requeues a job when its processes have ended.
    return (
        bool(ours["job"])
        and ours["job"] == holder["job"]
        and (ours["restarts"] > holder["restarts"])
    )


def _began(process: int) -> str:
    """Returns when a process began, in the kernel's ticks; "" if it does not run.

    Process ids are reused, so the id alone does not identify a process.
    """
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
