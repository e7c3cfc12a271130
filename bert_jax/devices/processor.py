"""What the processor of this machine can do."""

import os
import pathlib
import platform

# Instructions that multiply bfloat16 matrices, as Linux names them.
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def describe() -> str:
    """Returns the processor's name and the cores that this process may use: "AMD EPYC, 2 cores"."""
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def features() -> list[str]:
    """Returns the processor's features as Linux names them, in their order; elsewhere none."""
    return _cpuinfo("flags", "features").split()


def _cpuinfo(*names: str) -> str:
    """Returns the value of the first field of one of these names in Linux's file; "": none."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = (line for line in lines if line.lower().startswith(names))
    return next(found, "").partition(":")[2].strip()


def multiplies_bfloat16() -> bool:
    """Returns whether the processor has instructions for products of bfloat16 matrices."""
    return not _BFLOAT16.isdisjoint(features())
