"""Free memory and free disk space. Does not import jax."""

import os
import pathlib
import shutil

_CGROUP = pathlib.Path("/sys/fs/cgroup")
# (limit, use) of a container in versions 2 and 1 of Linux's control groups.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Returns the bytes that new allocations can have before the machine or its container is full.

    0 where it is not known, as on systems other than Linux.
    """
    free = _field(pathlib.Path("/proc/meminfo"), "MemAvailable:")
    for limit, used in _LIMITS:
        try:
            room = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
        except (OSError, ValueError):  # no such file, or no limit ("max")
            continue
        free = min(free, max(0, room)) if free else max(0, room)
    return free


def used_memory() -> int:
    """Returns the bytes of memory that this process has; 0 where it is not known."""
    return _field(pathlib.Path("/proc/self/status"), "VmRSS:")


def peak_memory() -> int:
    """Returns the most bytes of memory that this process had; 0 where it is not known."""
    return _field(pathlib.Path("/proc/self/status"), "VmHWM:")


def _field(path: pathlib.Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def existing_folder(path: str) -> str:
    """Returns the folder, or the nearest folder above it that exists."""
    folder = pathlib.Path(path or ".").absolute()
    return str(next(f for f in (folder, *folder.parents) if f.is_dir()))


def free_space(path: str) -> int:
    """Returns the free bytes of the file system that a folder is on, or would be on."""
    return shutil.disk_usage(existing_folder(path)).free


def file_system(path: str) -> int:
    """Returns the number of the file system that a folder is on, or would be on."""
    return os.stat(existing_folder(path)).st_dev
