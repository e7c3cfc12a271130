"""Names of devices to compile for: "v5e:4x4", "v5e-16", "h100:8", "h100:4x8"."""

import dataclasses
import difflib
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
_NAME = re.compile(r"([a-z]\w*)(?:([:-])(\d+(?:x\d+)*))?")
_TPU_EXAMPLES = "v5e:4x4 or v5e-16"
_GPU_EXAMPLES = "h100:8, or h100:4x8 for four machines"


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
    chip, separator, numbers = match.groups() if match else ("", "", "")
    chip = _ALIASES.get(chip, chip)
    if chip not in TPUS and chip not in GPUS:
        raise UserError(f"--topology={text}: {_unknown(chip)} {_all_chips()}")
    layout = tuple(map(int, numbers.split("x"))) if numbers else ()
    if not all(layout):
        raise UserError(f"--topology={text} has no chips: numbers are at least 1.")
    if chip in GPUS and len(layout) in (1, 2):
        return Topology(chip, layout if len(layout) == 2 else (1, *layout))
    if chip in TPUS and separator == ":" and len(layout) == TPUS[chip].axes:
        return Topology(chip, layout)
    if chip in TPUS and separator == "-" and len(layout) == 1:
        return Topology(chip, _usual_layout(text, TPUS[chip], layout[0]))
    raise UserError(f"--topology={text}: {_forms(chip)}")


def _usual_layout(text: str, tpu: Tpu, number: int) -> tuple[int, ...]:
    """Returns the layout of so many TensorCores or chips, as even as powers of two can be."""
    chips, rest = divmod(number, tpu.counted)
    doublings = chips.bit_length() - 1
    if rest or not chips or chips != 1 << doublings or chips == 2:
        what = "TensorCores" if tpu.counted == 2 else "chips"
        raise UserError(
            f"--topology={text}: a slice of {number} {what} has no usual layout: give the number of"
            f" chips along each of its {tpu.axes} dimensions, such as {text.partition('-')[0]}:"
            f"{'x'.join('4' * tpu.axes)}."
        )
    if chips == 4:
        return (2, 2, 1)[: tpu.axes]
    sizes = [(doublings + place) // tpu.axes for place in range(tpu.axes)]
    return tuple(1 << size for size in sizes)


def _unknown(chip: str) -> str:
    close = difflib.get_close_matches(chip, [*TPUS, *GPUS], 1, 0.8)
    return f"unknown chip{f' (did you mean {close[0]}?)' if close else ''}."


def _all_chips() -> str:
    return (
        f"Available are the TPUs {', '.join(TPUS)}, such as {_TPU_EXAMPLES}, and the NVIDIA GPUs"
        f" {', '.join(GPUS)}, such as {_GPU_EXAMPLES}."
    )


def _forms(chip: str) -> str:
    if chip in GPUS:
        return f"give the number of GPUs, or of machines and GPUs of each, as in {_GPU_EXAMPLES}."
    tpu = TPUS[chip]
    what = "TensorCores" if tpu.counted == 2 else "chips"
    layout = "x".join(("4", "4", "4")[: tpu.axes])
    number = tpu.counted * 4**tpu.axes
    return (
        f"give the chips along each of its {tpu.axes} dimensions, such as {chip}:{layout},"
        f" or the number of {what}, {chip}-{number}."
    )
