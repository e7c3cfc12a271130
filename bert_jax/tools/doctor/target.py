"""The devices that programs are compiled for: those of this machine, or hardware it lacks.

XLA's compilers for TPUs and for NVIDIA GPUs work without one; jax names the devices of a slice of
TPUs, and of as many GPUs as it is told.
"""

import contextlib
import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.devices.absent import ignore_tpus
from bert_jax.devices.chips import Chip, find_chip
from bert_jax.devices.memory import free_memory
from bert_jax.files.errors import UserError
from bert_jax.tools.doctor.gpus import GPUS
from bert_jax.tools.doctor.topology import Topology, parse

_CUDA_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
# Two TensorCores of a TPU v4 are one device, as in a program that runs there.
_CHIP_CONFIGS = {"v4": "megacore"}


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices to compile for.

    Attributes:
      devices: all of them.
      room: bytes of memory of each; 0: the compiler knows them, and refuses what does not fit.
      topology: what `devices` are; None: those of this machine.
    """

    devices: Sequence[Any]
    room: int
    topology: Topology | None = None

    @property
    def chip(self) -> Chip | None:
        """The peak rates of a device; None: not known, as for CPUs."""
        return find_chip(self.devices[0].device_kind)

    @property
    def num_chips(self) -> int:
        """Number of chips, of which some TPUs have two devices each."""
        if self.topology:
            return self.topology.chips
        # The devices of a TPU's chip have the same coordinates.
        places = {getattr(d, "coords", None) and (*d.coords, d.slice_index) for d in self.devices}
        return len(self.devices) if None in places else len(places)

    @property
    def meaning(self) -> str:
        """Returns "16 x TPU v5 lite (v5e:4x4, 16 chips)"."""
        where = f" ({self.topology.meaning})" if self.topology else ""
        return f"{len(self.devices)} x {self.devices[0].device_kind}{where}"

    def lowering(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which programs are planned and lowered for `devices`."""
        gpu = GPUS.get(self.topology.chip) if self.topology else None
        return gpu.lowering() if gpu else contextlib.nullcontext()


def find_target(name: str) -> Target:
    """Returns the devices of "v5e:4x4", "v5e-16", "h100:8"; without a name those of this machine.

    Raises:
      UserError: the name is not understood, there is no such slice, or the compiler is missing.
    """
    if not name:
        return Target(jax.devices(), free_memory())
    topology = parse(name)
    return _slice(topology) if topology.is_tpu else _gpus(topology)


def _slice(topology: Topology) -> Target:
    _check_compiler(topology, "TPUs", "tpu", ["libtpu"])
    ignore_tpus()
    from jax.experimental import topologies

    options: dict[str, Any] = {}
    if topology.chip in _CHIP_CONFIGS:
        options["chip_config_name"] = _CHIP_CONFIGS[topology.chip]
    if topology.chips == 1:  # otherwise a machine has four
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options)
    except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--topology={topology.name} is not a slice of TPUs that libtpu knows, such as v5e:4x4"
            f" or v5p:2x2x2: {reason}"
        ) from None
    return Target(found.devices, 0, topology)


def _gpus(topology: Topology) -> Target:
    _check_compiler(topology, "NVIDIA GPUs", "nvidia", _CUDA_PLUGINS)
    from jax.experimental import topologies

    gpu, (machines, count) = GPUS[topology.chip], topology.layout
    found = topologies.get_topology_desc(
        topology_name=topology.chip,
        platform="cuda",
        topology=f"1x{machines}x{count}",
        target_config=gpu.description(),
    )
    return Target(found.devices, gpu.device_memory_size, topology)


def _check_compiler(topology: Topology, devices: str, extra: str, modules: Sequence[str]) -> None:
    for name in modules:
        package = name.partition(".")[0]
        if importlib.util.find_spec(package) and importlib.util.find_spec(name):
            return
    raise UserError(
        f"--topology={topology.name} needs the compiler of {devices}: pip install -c"
        f" constraints.txt -e '.[{extra}]'."
    )
