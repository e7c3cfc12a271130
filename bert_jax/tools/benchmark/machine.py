"""Describes the machine of a measurement."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform

# Packages that determine the speed; the last two are installed only with the extra `parity`.
_PACKAGES = ("jax", "jaxlib", "numpy", "torch", "transformers")


def describe_machine() -> str:
    """One line: processor, cores, Python and versions."""
    processor = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":")[1] for line in lines if line.startswith("model name")]
        processor = names[0].strip() if names else processor
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in _PACKAGES
        if importlib.util.find_spec(name)
    )
    return f"{processor}, {cores} cores; Python {platform.python_version()}, {versions}"


def has_transformers() -> bool:
    """Returns whether torch and transformers are installed."""
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def has_trainer() -> bool:
    """Returns whether transformers' Trainer can run."""
    return has_transformers() and importlib.util.find_spec("accelerate") is not None
