"""The memory that a program takes on the devices that are here: it is run once, with zeros."""

import ctypes
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.files.errors import UserError
from bert_jax.tools.compile.program import Compiled

_STATUS, _RESET = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # of the resident memory: proc_pid_clear_refs(5)


def measured_peak(compiled: Compiled) -> int:
    """Returns the bytes on each device at the peak of a run, arguments included.

    Of CPUs it is what the process grows by, divided by its devices. 0: the system does not say.

    Raises:
      UserError: the program does not fit.
    """
    if compiled.executable is None:
        raise UserError(f"A program that does not fit cannot be run: {compiled.no_room}")
    devices = jax.local_devices()
    if devices[0].memory_stats() is None:
        return _growth(compiled) // len(devices)
    _run(compiled)
    return (devices[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def _growth(compiled: Compiled) -> int:
    if not _RESET.exists():
        return 0
    # What the compiler has freed would be used again, and not counted.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    _RESET.write_text(_RESET_PEAK)
    before = _resident("VmRSS")
    _run(compiled)
    return _resident("VmHWM") - before


def _run(compiled: Compiled) -> None:
    arguments = jax.tree.map(_zeros, compiled.program.arguments)
    jax.block_until_ready(compiled.executable(*arguments))


def _zeros(leaf: Any) -> Any:
    """Returns an array of zeros, or a key, where the shape's sharding has it."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
