"""The devices that programs are compiled for: those of this machine, or hardware it lacks.

XLA's compilers for TPUs and for NVIDIA GPUs work without one; jax names the devices of a slice of
TPUs, and of as many GPUs as it is told. Names are "v5e:4x4", "v5e-16", "h100:8", "h100:4x8".
"""

import contextlib
import dataclasses
import importlib.util
import math
import re
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.devices.absent import ignore_tpus
from bert_jax.devices.chips import Chip, find_chip
from bert_jax.devices.memory import free_memory
from bert_jax.files.errors import UserError
from bert_jax.tools.doctor.gpus import GPUS

# Generation of TPUs -> dimensions of a slice, and what the number in a name such as v4-32 counts on
# each chip: 2 TensorCores, or the chip itself (docs.cloud.google.com/tpu/docs).
TPUS = {
    "v2": (2, 2),
    "v3": (2, 2),
    "v4": (3, 2),
    "v5e": (2, 1),
    "v5p": (3, 2),
    "v6e": (2, 1),
    "tpu7x": (3, 2),
}
# Google's other names.
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v6litepod": "v6e", "v7x": "tpu7x"}
_NAME = re.compile(r"([a-z]\w*)([:-])(\d+(?:x\d+)*)")
# Extra -> the devices that it compiles for, and modules, one of which has the compiler.
COMPILERS = {
    "tpu": ("TPUs", ("libtpu",)),
    "nvidia": ("NVIDIA GPUs", ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")),
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips, and how they are connected."""

    chip: str  # a key of `TPUS` or `GPUS`
    layout: tuple[int, ...]  # chips along each dimension; for GPUs, (machines, GPUs of each)

    @property
    def chips(self) -> int:
        return math.prod(self.layout)

    @property
    def is_tpu(self) -> bool:
        return self.chip in TPUS

    @property
    def name(self) -> str:
        """The name with the layout: "v5e:4x4", "h100:8"."""
        layout = self.layout if self.is_tpu or self.layout[0] > 1 else self.layout[1:]
        return f"{self.chip}:{'x'.join(map(str, layout))}"

    @property
    def meaning(self) -> str:
        """Returns "v4:2x2x4, 16 chips of 2 TensorCores"."""
        cores = " of 2 TensorCores" if self.is_tpu and TPUS[self.chip][1] == 2 else ""
        kind = "chip" if self.is_tpu else "GPU"
        return f"{self.name}, {self.chips:,} {kind}{'s' * (self.chips > 1)}{cores}"


def parse(text: str) -> Topology:
    """Returns what a name means, in any spelling.

    "v5e-16" and "v5litepod-16" are 16 chips; the numbers of v2, v3, v4, v5p and tpu7x are those of
    TensorCores, two on each chip: "v4-32" is 2 x 2 x 4 chips.

    Raises:
      UserError: there is no such chip, or it has no such layout.
    """
    match = _NAME.fullmatch(text.strip().lower())
    chip, separator, numbers = match.groups() if match else (text.lower(), "", "0")
    chip, layout = _ALIASES.get(chip, chip), tuple(map(int, numbers.split("x")))
    axes, counted = TPUS.get(chip, (2, 0))
    if counted and separator == "-" and len(layout) == 1:
        layout = _usual_layout(layout[0], axes, counted)
    elif chip in GPUS and len(layout) == 1:
        layout = (1, *layout)
    if not all(layout) or len(layout) != axes or chip not in TPUS | GPUS:
        raise UserError(
            f"--topology={text} is not hardware that programs can be compiled for. Available are"
            f" TPUs, by the chips along each dimension of a slice or Google's names of slices"
            f" ({', '.join(TPUS)}: v5e:4x4 or v5e-16, v5p:2x2x2), and NVIDIA GPUs, by their"
            f" number or those of machines and GPUs of each ({', '.join(GPUS)}: h100:8, h100:4x8)."
        )
    return Topology(chip, layout)


def _usual_layout(number: int, axes: int, counted: int) -> tuple[int, ...]:
    """Returns the layout of so many TensorCores or chips, as even as powers of two allow.

    () if there is no usual one.
    """
    chips, rest = divmod(number, counted)
    doublings = chips.bit_length() - 1
    if rest or not chips or chips != 1 << doublings or chips == 2:
        return ()
    if chips == 4:
        return (2, 2, 1)[:axes]
    return tuple(1 << (doublings + place) // axes for place in range(axes))


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices to compile for."""

    devices: Sequence[Any]
    room: int  # bytes of each; 0: the compiler knows them, and refuses what does not fit
    topology: Topology | None = None  # what `devices` are; None: those of this machine

    @property
    def chip(self) -> Chip | None:
        """The peak rates of a device; None: not known, as for CPUs."""
        return find_chip(self.devices[0].device_kind)

    @property
    def num_chips(self) -> int:
        """Number of chips; a chip of some TPUs has two devices."""
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


def has_compiler(extra: str) -> bool:
    find = importlib.util.find_spec
    return any(find(name.partition(".")[0]) and find(name) for name in COMPILERS[extra][1])


def find_target(name: str) -> Target:
    """Returns the devices of "v5e:4x4", "v5e-16", "h100:8"; without a name those of this machine.

    Raises:
      UserError: the name is not understood, there is no such slice, or the compiler is missing.
    """
    if not name:
        return Target(jax.devices(), free_memory())
    topology = parse(name)
    extra = "tpu" if topology.is_tpu else "nvidia"
    if not has_compiler(extra):
        raise UserError(
            f"--topology={topology.name} needs the compiler of {COMPILERS[extra][0]}: pip install"
            f" -c constraints.txt -e '.[{extra}]'."
        )
    return _slice(topology) if topology.is_tpu else _gpus(topology)


def _slice(topology: Topology) -> Target:
    ignore_tpus()
    from jax.experimental import topologies

    options: dict[str, Any] = {}
    if topology.chip == "v4":  # two TensorCores are one device, as in a program that runs there
        options["chip_config_name"] = "megacore"
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
    from jax.experimental import topologies

    gpu, (machines, count) = GPUS[topology.chip], topology.layout
    found = topologies.get_topology_desc(
        topology_name=topology.chip,
        platform="cuda",
        topology=f"1x{machines}x{count}",
        target_config=gpu.description(),
    )
    return Target(found.devices, gpu.device_memory_size, topology)
