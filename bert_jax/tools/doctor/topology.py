"""Names of devices to compile for: "v5e:4x4", "v5e-16", "h100:8", "h100:4x8"."""

import dataclasses
import math
import re

from bert_jax.files.errors import UserError
from bert_jax.tools.doctor.gpus import GPUS


@dataclasses.dataclass(frozen=True)
class Tpu:
    """A generation of TPUs.

    Attributes:
      axes: dimensions of a slice.
      counted: what the number in a name such as v4-32 counts on each chip: 2 TensorCores, or the
        chip itself (docs.cloud.google.com/tpu/docs: v2, v3, v4, v5e, v5p, v6e, tpu7x).
    """

    axes: int
    counted: int


TPUS = {
    "v2": Tpu(2, 2),
    "v3": Tpu(2, 2),
    "v4": Tpu(3, 2),
    "v5e": Tpu(2, 1),
    "v5p": Tpu(3, 2),
    "v6e": Tpu(2, 1),
    "tpu7x": Tpu(3, 2),
}
# Google's other names.
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v6litepod": "v6e", "v7x": "tpu7x"}
_NAME = re.compile(r"([a-z]\w*)([:-])(\d+(?:x\d+)*)")


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips, and how they are connected.

    Attributes:
      chip: a key of `TPUS` or `GPUS`.
      layout: chips along each dimension of a slice; of GPUs, (machines, GPUs of each).
    """

    chip: str
    layout: tuple[int, ...]

    @property
    def chips(self) -> int:
        """Number of chips."""
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
        cores = " of 2 TensorCores" if self.is_tpu and TPUS[self.chip].counted == 2 else ""
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
    tpu = TPUS.get(chip)
    if tpu and separator == "-" and len(layout) == 1:
        layout = _usual_layout(tpu, layout[0])
    elif chip in GPUS and len(layout) == 1:
        layout = (1, *layout)
    if not all(layout) or len(layout) != (tpu.axes if tpu else 2) or chip not in TPUS | GPUS:
        raise UserError(
            f"--topology={text} is no hardware to compile for. Available are TPUs, by the chips"
            f" along each dimension of a slice or Google's names of slices ({', '.join(TPUS)}:"
            " v5e:4x4 or v5e-16, v5p:2x2x2), and NVIDIA GPUs, by their number or those of machines"
            f" and GPUs of each ({', '.join(GPUS)}: h100:8, h100:4x8)."
        )
    return Topology(chip, layout)


def _usual_layout(tpu: Tpu, number: int) -> tuple[int, ...]:
    """Returns the layout of so many TensorCores or chips, as even as powers of two can be.

    () if there is no usual one.
    """
    chips, rest = divmod(number, tpu.counted)
    doublings = chips.bit_length() - 1
    if rest or not chips or chips != 1 << doublings or chips == 2:
        return ()
    if chips == 4:
        return (2, 2, 1)[: tpu.axes]
    sizes = [(doublings + place) // tpu.axes for place in range(tpu.axes)]
    return tuple(1 << size for size in sizes)
