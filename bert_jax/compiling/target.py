"""The devices that programs are compiled for: those of this machine, or a slice of TPUs elsewhere.

XLA's compiler for TPUs works without one; jax names the devices of a slice.
"""

import dataclasses
import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.devices.chips import Chip, find_chip
from bert_jax.doctor.footprint import free_memory

EXAMPLES = "v4:2x2x1, v5e:4x4, v5p:2x2x2, v6e:16x16"
# So that libtpu looks neither for a cloud machine nor for its chips; any values do.
_NO_HOST = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
_NAME = re.compile(r"v\d\w*:\d+(x\d+){1,2}")


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices to compile for.

    Attributes:
      devices: all of them.
      room: bytes of memory of each; 0: the compiler knows them, and refuses what does not fit.
    """

    devices: Sequence[Any]
    room: int

    @property
    def chip(self) -> Chip | None:
        """The peak rates of a device; None: not known, as for CPUs."""
        return find_chip(self.devices[0].device_kind)


def find(topology: str) -> Target:
    """Returns a slice "v5e:4x4"; without a name the devices of this machine.

    Raises:
      ValueError: the name has another form, there is no such slice, or libtpu is missing.
    """
    if not topology:
        return Target(jax.devices(), free_memory())
    if not _NAME.fullmatch(topology):
        raise ValueError(f"--topology={topology} is not a slice of TPUs, such as {EXAMPLES}.")
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError(
            f"--topology={topology} needs the compiler of TPUs: pip install -c constraints.txt"
            " -e '.[tpu]'."
        )
    for name, value in _NO_HOST.items():
        os.environ.setdefault(name, value)
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--topology={topology} is not a slice of TPUs that libtpu knows, such as {EXAMPLES}:"
            f" {reason}"
        ) from None
    return Target(found.devices, 0)
