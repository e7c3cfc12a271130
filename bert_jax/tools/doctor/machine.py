"""The machine: versions, memory, disk, devices and the folder of compiled programs."""

import importlib.metadata
import os
import pathlib
import platform
import shutil
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bert_jax.devices import processor
from bert_jax.devices.memory import available_memory, device_memory
from bert_jax.tools.doctor.finding import Finding, in_bytes, note, ok, problem, warning

PACKAGE = "bert_jax"
INSTALL = "pip install -c constraints.txt"


def before_jax(folder: str) -> Iterator[Finding]:
    """Yields what is known without importing jax: versions, memory, disk.

    Args:
      folder: the run's folder, which may not exist.
    """
    yield from versions()
    memory = available_memory()
    free = in_bytes(memory) if memory else "Unknown"
    yield ok(f"{free} of memory are free; {processor.num_cores()} cores.")
    yield disk(folder)


def versions() -> Iterator[Finding]:
    """Compares Python and the required packages with the ranges of the package's metadata."""
    try:
        metadata = importlib.metadata.metadata(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        yield note(f"{PACKAGE} is not installed: its versions are not compared.", f"{INSTALL} .")
        return
    of_python = SpecifierSet(metadata["Requires-Python"] or "")
    found = [("Python", platform.python_version(), of_python)]
    for requirement in map(Requirement, importlib.metadata.requires(PACKAGE) or ()):
        if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
            version = version_of(requirement.name)
            found.append((requirement.name, version, requirement.specifier))
    good = []
    for name, version, specifiers in found:
        if version and specifiers.contains(version, prereleases=True):
            good.append(f"{name} {version}")
            continue
        has = f"{name} {version}" if version else f"{name} is not installed"
        fix = "Use another Python." if name == "Python" else f"{INSTALL} ."
        yield problem(f"{has}; needed is {specifiers or 'any'}.", fix)
    yield ok(f"{len(good)} versions are within their ranges: {', '.join(good)}.")


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def disk(folder: str) -> Finding:
    """Returns the free space where a run would be, and whether it can be written there."""
    place, free = existing_folder(folder), free_space(folder)
    if not os.access(place, os.W_OK):
        return problem(f"{place} cannot be written.", "Choose another --workdir.")
    return ok(f"{in_bytes(free)} are free on the disk of {place}.")


def devices() -> Iterator[Finding]:
    """Yields the devices that jax finds, their memory, and the folder of compiled programs."""
    import jax

    from bert_jax.devices import compilation_cache

    found = jax.devices()
    kinds = f"{len(found)} x {found[0].device_kind} ({found[0].platform})"
    if limit := device_memory():
        kinds += f", {in_bytes(limit)} of memory each"
    if found[0].platform == "cpu" and _has_nvidia():
        yield warning(
            f"Devices: {kinds}, although this machine has an NVIDIA GPU.",
            "pip install -c constraints-cuda.txt '.[cuda]'; and unset JAX_PLATFORMS, if it is set.",
        )
    else:
        yield ok(f"Devices: {kinds}.")
    if kept := compilation_cache.describe():
        yield ok(f"Compiled {kept}.")
    else:
        yield note(
            "Compiled programs are not kept: each start compiles again, seconds to minutes.",
            "Leave out --compilation_cache=off, or give a folder that can be written.",
        )


def _has_nvidia() -> bool:
    return os.path.exists("/proc/driver/nvidia/version") or bool(shutil.which("nvidia-smi"))


def existing_folder(path: str) -> str:
    """Returns the folder, or the nearest folder above it that exists."""
    folder = pathlib.Path(path or ".").absolute()
    return str(next(f for f in (folder, *folder.parents) if f.is_dir()))


def free_space(path: str) -> int:
    """Returns the free bytes of the file system that a folder is on, or would be on."""
    return shutil.disk_usage(existing_folder(path)).free
