"""What the processor of this machine can do."""

import os
import pathlib
import platform

# Vector units as Linux names them, the widest first -> their names.
_UNITS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}


def describe() -> str:
    """Returns the processor's name, its widest vector unit and the cores that this process may use.

    For example "AMD EPYC with AVX-512, 2 cores". Virtual machines with one name have several units.
    """
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    found = features()
    unit = next((f" with {unit}" for flag, unit in _UNITS.items() if flag in found), "")
    return f"{name}{unit}, {num_cores()} cores"


def num_cores() -> int:
    """Returns how many cores this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # on Linux
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def features() -> list[str]:
    """Returns the processor's features as Linux names them, in their order; elsewhere none."""
    return _cpuinfo("flags", "features").split()


def _cpuinfo(*names: str) -> str:
    """Returns the value of the first field with one of these names in /proc/cpuinfo; "": none."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = (line for line in lines if line.lower().startswith(names))
    return next(found, "").partition(":")[2].strip()


def gains_from_bfloat16() -> bool:
    """Returns whether matrix products are faster in bfloat16 than in float32.

    They are with AMX, and with AVX512-BF16 on AMD's processors. On an Intel Xeon with only the
    latter, they take 1.5 to 1.6 times as long (docs/log/system.md). Others were not measured.
    """
    found = features()
    is_amd = _cpuinfo("vendor_id") == "AuthenticAMD"
    return "amx_bf16" in found or (is_amd and "avx512_bf16" in found)
