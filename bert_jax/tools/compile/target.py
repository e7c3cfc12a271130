"""The devices that programs are compiled for: those of this machine, or others that are not here.

XLA's compilers for TPUs and for NVIDIA GPUs work without one; jax names the devices of a slice of
TPUs, and of as many GPUs as it is told.
"""

import dataclasses
import importlib.util
import re
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.devices.absent import ignore_tpus
from bert_jax.devices.chips import Chip, find_chip
from bert_jax.devices.memory import free_memory
from bert_jax.files.errors import UserError
from bert_jax.tools.compile.gpus import GPUS

TPU_EXAMPLES = "v4:2x2x1, v5e:4x4, v5p:2x2x2, v6e:16x16"
EXAMPLES = f"a slice of TPUs ({TPU_EXAMPLES}), or NVIDIA GPUs (h100:8, h100:4x8 of four machines)"
_SLICE = re.compile(r"v\d\w*:\d+(x\d+){1,2}")
_GPUS = re.compile(rf"({'|'.join(GPUS)}):(?:(\d+)x)?(\d+)")
_CUDA_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")


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
    """Returns the devices of "v5e:4x4", "h100:8", "h100:4x8"; without a name those of this machine.

    Raises:
      UserError: the name has another form, there is no such slice, or the compiler is missing.
    """
    if not topology:
        return Target(jax.devices(), free_memory())
    if found := _GPUS.fullmatch(topology):
        kind, machines, count = found.groups()
        return _gpus(topology, kind, int(machines or 1), int(count))
    if _SLICE.fullmatch(topology):
        return _slice(topology)
    raise UserError(f"--topology={topology} is neither of {EXAMPLES}.")


def _slice(topology: str) -> Target:
    _check_compiler(topology, "TPUs", "tpu", ["libtpu"])
    ignore_tpus()
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--topology={topology} is not a slice of TPUs that libtpu knows, such as"
            f" {TPU_EXAMPLES}: {reason}"
        ) from None
    return Target(found.devices, 0)


def _gpus(topology: str, kind: str, machines: int, count: int) -> Target:
    if not machines * count:
        raise UserError(f"--topology={topology} has no GPU: one is {kind}:1.")
    _check_compiler(topology, "NVIDIA GPUs", "nvidia", _CUDA_PLUGINS)
    from jax.experimental import topologies

    gpu = GPUS[kind]
    found = topologies.get_topology_desc(
        topology_name=kind,
        platform="cuda",
        topology=f"1x{machines}x{count}",
        target_config=gpu.description(),
    )
    return Target(found.devices, gpu.device_memory_size)


def _check_compiler(topology: str, devices: str, extra: str, modules: Sequence[str]) -> None:
    for name in modules:
        package = name.partition(".")[0]
        if importlib.util.find_spec(package) and importlib.util.find_spec(name):
            return
    raise UserError(
        f"--topology={topology} needs the compiler of {devices}: pip install -c constraints.txt"
        f" -e '.[{extra}]'."
    )
