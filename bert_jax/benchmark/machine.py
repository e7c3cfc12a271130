"""On what a number was measured."""

import importlib.metadata
import os
import platform


def describe_machine() -> str:
    """One line: processor, cores, Python and the versions that decide the speed."""
    packages = ("jax", "jaxlib", "flax", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
