"""What XLA's compiler needs to know about an NVIDIA GPU that the machine lacks."""

import contextlib
import dataclasses
from collections.abc import Iterator
from unittest import mock

# CUDA C++ Programming Guide, technical specifications: the same for all compute capabilities below.
_LIMITS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 << 10,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
}
# The driver keeps this much of the shared memory of a block.
_RESERVED = 1 << 10
_CUDNN = (9, 10)  # version that programs are compiled for


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU. "Core" is XLA's word for a streaming multiprocessor."""

    name: str  # that jax gives it
    capability: int  # major number of the compute capability
    core_count: int  # multiprocessors
    fpus_per_core: int  # float32 units
    clock_rate_ghz: float  # maximum
    device_memory_size: int  # bytes that programs can use
    memory_bandwidth: int  # in MB/s
    l2_cache_size: int  # in KiB
    shared_memory_per_core: int  # in KiB

    def description(self) -> str:
        """Returns XLA's message GpuTargetConfigProto, as text."""
        shared = self.shared_memory_per_core << 10
        fields = _LIMITS | {
            "core_count": self.core_count,
            "fpus_per_core": self.fpus_per_core,
            "clock_rate_ghz": self.clock_rate_ghz,
            "device_memory_size": self.device_memory_size,
            "memory_bandwidth": self.memory_bandwidth * 10**6,
            "l2_cache_size": self.l2_cache_size << 10,
            "shared_memory_per_core": shared,
            "shared_memory_per_block_optin": shared - _RESERVED,
        }
        lines = "".join(f"  {name}: {value}\n" for name, value in fields.items())
        # From 9.0 on, matrix product instructions are specific to one architecture.
        features = " feature_extension: ACCELERATED_FEATURES" if self.capability >= 9 else ""
        return (
            f"gpu_device_info {{\n{lines}  cuda_compute_capability {{ major: {self.capability}"
            f'{features} }}\n}}\nplatform_name: "CUDA"\n'
            f"dnn_version_info {{ major: {_CUDNN[0]} minor: {_CUDNN[1]} }}\n"
            f'device_description_str: "{self.name}"\n'
        )

    @contextlib.contextmanager
    def lowering(self) -> Iterator[None]:
        """Lets jax lower cuDNN attention for this GPU on a machine that has neither.

        jax asks the machine for its GPU and its version of cuDNN, and has no public option for
        other ones. XLA compiles the calls without them.
        """
        from jax._src.cudnn import fused_attention_stablehlo as fused

        major, minor = _CUDNN
        answers = {
            "check_cudnn_version": lambda: 10_000 * major + 100 * minor,
            "check_compute_capability": lambda least: float(least) <= self.capability,
            "is_cuda_compute_capability_equal": lambda other: float(other) == self.capability,
        }
        with mock.patch.multiple(fused, **answers):
            yield


# Those that CUDA 13 compiles for. NVIDIA's white papers of the architectures, and what the driver
# reports for memory, bandwidth and clock (also in XLA's target_config/specs).
GPUS = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", 8, 108, 64, 1.41, 85_100_068_864, 2_039_040, 40_960, 164),
    "h100": Gpu("NVIDIA H100 80GB HBM3", 9, 132, 128, 1.98, 84_942_979_072, 3_352_320, 51_200, 228),
    "h200": Gpu("NVIDIA H200", 9, 132, 128, 1.98, 151_397_597_184, 4_800_000, 51_200, 228),
    "b200": Gpu("NVIDIA B200", 10, 148, 128, 1.965, 191_514_411_008, 7_672_320, 129_536, 228),
}
