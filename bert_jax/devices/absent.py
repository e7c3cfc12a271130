"""Silences errors about accelerators that this machine lacks but has libraries for."""

import glob
import importlib.util
import logging
import os

# For libtpu; any values will do.
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    # Two programs may compile for TPUs at once, since neither has one.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
# Device files of the drivers: TPUs; NVIDIA GPUs, also in WSL.
_TPUS = ("/dev/accel*", "/dev/vfio/[0-9]*")
_GPUS = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg")


def silence() -> None:
    """Silences libtpu on a machine without TPUs, and jax's CUDA plugin on one without GPUs.

    Call it before jax looks for devices.
    """
    if importlib.util.find_spec("libtpu") and not _exists(_TPUS):
        ignore_tpus()
    if not _exists(_GPUS):
        # Hides the error that the plugin cannot load CUDA's libraries.
        logging.getLogger("jax._src.xla_bridge").addFilter(
            lambda record: "jax_plugins.xla_cuda" not in record.getMessage()
        )


def ignore_tpus() -> None:
    """Makes libtpu look neither for a cloud machine nor for its chips."""
    for name, value in _NO_TPU.items():
        os.environ.setdefault(name, value)


def _exists(patterns: tuple[str, ...]) -> bool:
    return any(map(glob.glob, patterns))
