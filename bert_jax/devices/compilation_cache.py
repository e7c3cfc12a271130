"""Keeps compiled programs in a per-user folder, where later processes find them."""

import os
import platform
import zlib
from typing import Any

import jax

from bert_jax.devices import processor
from bert_jax.files.errors import UserError
from bert_jax.files.user_cache import cache_folder

MAX_BYTES = 2_000_000_000
OFF = "off"
# Loading a program takes a few milliseconds; programs that compile faster are not kept.
_MIN_SECONDS = 0.1


def default_folder() -> str:
    """Returns a folder in the user's cache folder for processors of this kind.

    XLA compiles for the processor's instruction set, and machines may share a home folder.
    """
    features = " ".join(processor.features())
    name = f"{platform.machine()}-{zlib.crc32(features.encode()):08x}"
    return os.path.join(cache_folder("compiled"), name)


def use(folder: str = "") -> None:
    """Selects the folder of compiled programs for this process, before anything is compiled.

    Args:
      folder: `off`: none; empty: that of JAX_COMPILATION_CACHE_DIR, which leaves all settings to
        jax's own variables, or else `default_folder()`.

    Raises:
      UserError: `folder` is given and cannot be written. A default that cannot is not used.
    """
    if folder == OFF:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if not folder and _setting("compilation_cache_dir"):
        return
    path = folder or default_folder()
    try:
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"no permission to write {path}")
    except OSError as error:
        if not folder:
            return
        raise UserError(
            f"--compilation_cache={folder} cannot be written ({error.strerror or error}):"
            f" give another folder, or {OFF}."
        ) from None
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)
    # XLA's own caches for GPUs have no size limit.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def describe() -> str:
    """Returns where compiled programs are kept, in a few words; empty if nowhere."""
    folder, size = _setting("compilation_cache_dir"), _setting("compilation_cache_max_size")
    if not folder or not _setting("enable_compilation_cache"):
        return ""
    limit = f"at most {size / 1e9:.1f} GB" if size >= 0 else "without a limit"
    return f"programs are kept in {folder}, {limit}; --compilation_cache={OFF} keeps none"


def _setting(name: str) -> Any:
    return getattr(jax.config, f"jax_{name}")
