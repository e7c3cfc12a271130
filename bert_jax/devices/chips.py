"""Peak rates of a device: FLOP/s, bytes/s of its memory, bytes/s between chips.

From the vendors' pages: docs.cloud.google.com/tpu/docs/v2 to v6e and tpu7x ("key specifications";
jax's devices of v2, v3 and TPU7x are TensorCores, two on each chip), NVIDIA's data sheets for
V100 SXM2, A100 SXM 80 GB, H100 SXM, H200 and B200, whose links are NVLink.
"""

import dataclasses

import jax


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak rates of a device.

    Attributes:
      flops: dense bfloat16 matrix products, in FLOP/s.
      bandwidth: memory bandwidth in bytes/s; 0: not in the table.
      interconnect: bytes/s that it can send to the other chips of a slice, or GPUs of a machine,
        over all links together; 0: not in the table.
    """

    flops: float
    bandwidth: float = 0.0
    interconnect: float = 0.0


# Keyed by a prefix of the name that jax gives the device; the longest match wins. Google states
# links in bits/s in one direction (v5e: 1,600 Gbps) or in bytes/s in both (400 GBps), NVIDIA in
# bytes/s in both.
CHIPS = {
    "NVIDIA V100": Chip(125e12, 900e9, 150e9),
    "Tesla V100": Chip(125e12, 900e9, 150e9),
    "NVIDIA A100": Chip(312e12, 2.039e12, 300e9),
    "NVIDIA H100": Chip(989e12, 3.35e12, 450e9),
    "NVIDIA H200": Chip(989e12, 4.8e12, 450e9),
    "NVIDIA B200": Chip(2250e12, 8e12, 900e9),
    "TPU v2": Chip(45e12 / 2),
    "TPU v3": Chip(123e12 / 2),
    "TPU v4": Chip(275e12, 1.2e12),
    "TPU v5 lite": Chip(197e12, 819e9, 200e9),
    "TPU v5": Chip(459e12, 2.765e12, 600e9),
    "TPU v6 lite": Chip(918e12, 1.638e12, 400e9),
    "TPU7x": Chip(2307e12 / 2, 7.38e12 / 2, 600e9 / 2),
}


def find_chip(kind: str) -> Chip | None:
    """Returns the peak rates of a device kind, as jax names it; None if unknown, as for CPUs."""
    known = [name for name in CHIPS if kind.startswith(name)]
    return CHIPS[max(known, key=len)] if known else None


def peak_flops() -> float | None:
    """Returns the peak FLOP/s of all devices together; None if unknown, as for CPUs."""
    chip = find_chip(jax.devices()[0].device_kind)
    return chip.flops * jax.device_count() if chip else None
