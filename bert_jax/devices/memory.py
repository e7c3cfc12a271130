"""Bytes of memory: what devices and this machine have, and what arrays and programs take.

jax is imported only where devices are queried: `doctor` checks the machine without it.
"""

import math
import pathlib
from typing import Any

_CGROUP = pathlib.Path("/sys/fs/cgroup")
# (limit, use) of a container in versions 2 and 1 of Linux's control groups.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def device_memory() -> int:
    """Returns the bytes of memory of a device; 0 for CPUs, which share the machine's."""
    import jax

    statistics = jax.local_devices()[0].memory_stats() or {}
    return int(statistics.get("bytes_limit", 0))


def free_memory() -> int:
    """Returns the bytes available to each device of this process; CPUs share the machine's."""
    import jax

    return device_memory() or available_memory() // jax.local_device_count()


def available_memory() -> int:
    """Returns the bytes that new allocations can take before the machine or its container is full.

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
    """Returns the bytes of memory that this process uses; 0 if not known."""
    return _field(pathlib.Path("/proc/self/status"), "VmRSS:")


def _field(path: pathlib.Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def peak_of_program(compiled: Any) -> int:
    """Returns the peak bytes of a program on each device, arguments included.

    As reported by the compiler; 0 on platforms where it does not report them.
    """
    found = compiled.memory_analysis()
    if found is None:
        return 0
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return found.argument_size_in_bytes + found.temp_size_in_bytes + max(0, results)


def bytes_of(tree: Any) -> int:
    """Returns the bytes of an array tree on each device, from its shardings."""
    import jax

    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )


def whole_bytes_of(tree: Any) -> int:
    """Returns the bytes of an array tree, each array counted once."""
    import jax

    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def zeros_like(tree: Any) -> Any:
    """Returns arrays of zeros with the shapes, dtypes and shardings of a tree."""
    import jax

    return jax.tree.map(
        lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype, device=leaf.sharding), tree
    )
