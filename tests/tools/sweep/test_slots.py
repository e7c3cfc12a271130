"""Parts of a machine are disjoint, and together all of it."""

import os
import pathlib

import pytest

from bert_jax.tools.sweep import slots


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Returns a function (cores, GPUs) that pretends that the machine has them."""

    def pretend(cores: int, gpus: int, **environment: str) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in ({"JAX_PLATFORMS": ""} | environment).items():
            monkeypatch.setenv(name, value)
        program = pathlib.Path(tmp_path, "nvidia-smi")
        lines = "".join(f"echo 'GPU {i}: NVIDIA H200 (UUID: GPU-{i})'\n" for i in range(gpus))
        program.write_text(f"#!/bin/sh\n{lines}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return pretend


@pytest.mark.parametrize(
    "gpus, environment, visible",
    [
        (0, {}, None),
        (4, {}, ("0,1", "2,3")),
        (4, {"CUDA_VISIBLE_DEVICES": "1,3"}, ("1", "3")),
        (4, {"CUDA_VISIBLE_DEVICES": ""}, None),
        (4, {"JAX_PLATFORMS": "cpu"}, None),
    ],
)
def test_cores_and_visible_gpus_are_divided(gpus, environment, visible, machine):
    machine(7, gpus, **environment)
    parts = ["cores 0,1,2", "cores 3,4,5,6"]
    if visible:
        both = zip(parts, visible, strict=True)
        parts = [f"{part}, CUDA_VISIBLE_DEVICES={devices}" for part, devices in both]
    assert [part.describe() for part in slots.make_slots(2)] == parts
    assert slots.make_slots(1) == [slots.Slot(0)]  # the machine as it is


@pytest.mark.parametrize(
    "cores, gpus, platforms, message",
    [
        (2, 0, "", "--parallel=3 needs at least 3 CPU cores; there are 2."),
        (4, 2, "", "--parallel=3 needs at least 3 GPUs; there are 2."),
        (4, 0, "tpu", "--parallel=3: the chips of a TPU host are not divided"),
    ],
)
def test_more_parts_than_devices_are_refused(cores, gpus, platforms, message, machine):
    machine(cores, gpus, JAX_PLATFORMS=platforms)
    with pytest.raises(ValueError, match=message):
        slots.make_slots(3)
