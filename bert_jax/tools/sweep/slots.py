"""Disjoint parts of this machine, one for each process that runs at the same time."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field

from bert_jax.files.errors import UserError


@dataclass(frozen=True)
class Slot:
    """A part of the machine."""

    number: int  # from 0
    cores: frozenset[int] = frozenset()  # that its process may use; empty: all
    environment: dict[str, str] = field(default_factory=dict)  # variables of its process

    def describe(self) -> str:
        """Returns for example "cores 0,1, CUDA_VISIBLE_DEVICES=0"; empty for the whole machine."""
        cores = ",".join(map(str, sorted(self.cores)))
        parts = [f"cores {cores}"] if cores else []
        return ", ".join([*parts, *(f"{k}={v}" for k, v in self.environment.items())])


def make_slots(count: int) -> list[Slot]:
    """Returns `count` disjoint parts of the cores and, if there are any, of the GPUs.

    XLA makes as many threads as there are cores that its process may use. A single part is the
    whole machine, as it is.

    Raises:
      UserError: there are fewer cores or GPUs than parts, or the devices cannot be divided.
    """
    if count == 1:
        return [Slot(0)]
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if "tpu" in platforms:
        raise UserError(
            f"--parallel={count}: the chips of a TPU host are not divided. Run one job on a host,"
            " with --slurm."
        )
    cores = _split(sorted(os.sched_getaffinity(0)), count, "CPU cores")
    gpus = [] if platforms == "cpu" else _visible_gpus()
    environments = [{} for _ in range(count)]
    if gpus:
        parts = _split(gpus, count, "GPUs")
        environments = [{"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in parts]
    return [Slot(i, frozenset(cores[i]), environments[i]) for i in range(count)]


def _visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip() and name.strip() != "-1"]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in lines))]


def _split(items: list, count: int, what: str) -> list[list]:
    """Returns `count` contiguous parts whose lengths differ by at most one."""
    if len(items) < count:
        raise UserError(
            f"--parallel={count} needs at least {count} {what}; there are {len(items)}."
        )
    bounds = [i * len(items) // count for i in range(count + 1)]
    return [items[bounds[i] : bounds[i + 1]] for i in range(count)]
