"""Versions, extras, memory, disk, devices and the folder of compiled programs."""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
from collections.abc import Iterator

from bert_jax.devices.memory import available_memory, device_memory
from bert_jax.tools.doctor.finding import Finding, in_bytes, note, ok, problem, warning

PACKAGE = "bert_jax"
INSTALL = "pip install -c constraints.txt"
# Extras of setup.py that a run may need, and what for.
EXTRAS = {
    "cuda": "NVIDIA GPUs",
    "tpu": "TPUs",
    "nvidia": "compilation for NVIDIA GPUs on a machine without one",
    "zstd": "text compressed with zstd",
    "gpt": "the released tokenizer of GPT",
    "elmo": "weights of bilm-tf",
    "gcs": "gs:// addresses",
    "s3": "s3:// addresses",
    "serve": "the server",
    "beam": "preparation on an engine, in an environment of its own",
    "parity": "comparisons with transformers, real weights",
    "test": "the tests",
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([^\]]*)\])?([^;]*)(?:;\s*extra == ['\"](\w+)['\"])?")
# What extras of jax install besides jax.
_CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
_PLUGINS = {"cuda": _CUDA_PLUGINS, "tpu": ("libtpu",), "nvidia": _CUDA_PLUGINS}
_LITTLE_MEMORY, _LITTLE_DISK = 2e9, 5e9


def before_jax(folder: str) -> Iterator[Finding]:
    """Yields what is known without importing jax: versions, memory, disk.

    Args:
      folder: of the run, or where it would be.
    """
    yield from versions()
    yield from extras()
    memory = available_memory()
    if not memory:
        yield note("The free memory is not known on this system.")
    elif memory < _LITTLE_MEMORY:
        yield warning(
            f"{in_bytes(memory)} of memory are free; jax and a small model need 2 GB.",
            "End other programs, or take a larger machine.",
        )
    else:
        yield ok(f"{in_bytes(memory)} of memory are free; {_cores()} cores.")
    yield disk(folder)


def versions() -> Iterator[Finding]:
    """Compares Python and the required packages with the ranges of the package's metadata."""
    try:
        metadata = importlib.metadata.metadata(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        yield note(f"{PACKAGE} is not installed: its versions are not compared.", f"{INSTALL} .")
        return
    python, range_of_python = platform.python_version(), metadata["Requires-Python"] or ""
    fits = is_within(python, range_of_python)
    yield Finding(
        "ok" if fits else "problem",
        f"Python {python}; needed is {range_of_python or 'any'}.",
        "" if fits else "Make an environment of another Python.",
    )
    good = []
    for name, specifiers, extra in requirements():
        if extra:
            continue
        found = version_of(name)
        if found and is_within(found, specifiers):
            good.append(f"{name} {found}")
            continue
        has = f"{name} {found}" if found else f"{name} is not installed"
        yield problem(f"{has}; needed is {specifiers or 'any'}.", f"{INSTALL} .")
    yield ok(f"{len(good)} packages are within their ranges: {', '.join(good)}.")


def extras() -> Iterator[Finding]:
    """Yields which extras are installed, and what the others are for."""
    named = {extra: f"{extra} ({purpose})" for extra, purpose in EXTRAS.items()}
    present = [extra for extra in EXTRAS if _has(extra)]
    if present:
        yield ok(f"Extras: {', '.join(named[extra] for extra in present)}.")
    if missing := [extra for extra in EXTRAS if extra not in present]:
        yield note(
            f"Extras that are not installed: {', '.join(named[extra] for extra in missing)}.",
            f"Where you need one: {INSTALL} '.[NAME]'",
        )


def _has(extra: str) -> bool:
    if extra in _PLUGINS:
        return any(map(version_of, _PLUGINS[extra]))
    needed = [(name, specifiers) for name, specifiers, of in requirements() if of == extra]
    found = [(version_of(name), specifiers) for name, specifiers in needed]
    return bool(found) and all(v and is_within(v, specifiers) for v, specifiers in found)


def requirements() -> Iterator[tuple[str, str, str]]:
    """Yields (package, version specifiers, extra or empty) of each requirement of this package."""
    try:
        lines = importlib.metadata.requires(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for line in lines:
        if match := _REQUIREMENT.match(line):
            yield match[1], match[3].strip(), match[4] or ""


def version_of(name: str) -> str:
    """Returns the version of an installed package; empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_within(version: str, specifiers: str) -> bool:
    """Returns whether a version fits all specifiers, such as ">=0.8,<1"; of `>= > <= < == !=`."""
    for specifier in filter(None, map(str.strip, specifiers.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([\d.]+).*", specifier)
        if match is None:
            continue  # one that this package does not use
        least = [int(number) for number in match[2].strip(".").split(".")]
        numbers = [int(number) for number in re.findall(r"\d+", version)]
        width = max(len(least), len(numbers))
        have, want = (tuple(n + [0] * (width - len(n))) for n in (numbers, least))
        checks = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            ">": have > want,
            "<": have < want,
        }
        if not checks[match[1]]:
            return False
    return True


def disk(folder: str) -> Finding:
    """Returns the free space where a run would be, and whether it can be written there."""
    place, free = existing_folder(folder), free_space(folder)
    if not os.access(place, os.W_OK):
        return problem(f"{place} cannot be written.", "Choose another --workdir.")
    if free < _LITTLE_DISK:
        return warning(
            f"{in_bytes(free)} are free on the disk of {place}; runs of BERT-Base need 5 GB and"
            " more.",
            "Free some space, or choose a --workdir on another disk.",
        )
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
            f"{INSTALL} '.[cuda]'; and unset JAX_PLATFORMS, if it is set.",
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


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ------------------------------------------------------------------ disk space


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
