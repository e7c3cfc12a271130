"""What the processor of this machine can do."""

import pathlib

# Instructions that multiply bfloat16 matrices, as Linux names them.
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def features() -> list[str]:
    """Returns the processor's features as Linux names them, in their order; elsewhere none."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    found = (line for line in lines if line.lower().startswith(("flags", "features")))
    return next(found, "").partition(":")[2].split()


def multiplies_bfloat16() -> bool:
    """Returns whether the processor has instructions for products of bfloat16 matrices."""
    return not _BFLOAT16.isdisjoint(features())
