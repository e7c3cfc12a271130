"""Parts of a machine are disjoint, and together all of it."""

import os
import pathlib

import pytest

from bert_jax.tools.sweep import slots


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Returns a function (cores, GPUs) that pretends that the machine has them."""

    def pretend(cores: int, gpus: int = 0) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("JAX_PLATFORMS", "")
        program = pathlib.Path(tmp_path, "nvidia-smi")
        lines = "".join(f"echo 'GPU {i}: NVIDIA H200 (UUID: GPU-{i})'\n" for i in range(gpus))
        program.write_text(f"#!/bin/sh\n{lines}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return pretend


def test_one_part_is_the_machine_as_it_is(machine):
    machine(cores=4, gpus=2)
    assert slots.make_slots(1) == [slots.Slot(0)]


def test_cores_are_divided(machine):
    machine(cores=7)
    parts = slots.make_slots(3)
    assert sorted(core for part in parts for core in part.cores) == list(range(7))
    assert {len(part.cores) for part in parts} == {2, 3}
    assert all(not part.environment for part in parts)


def test_gpus_are_divided(machine):
    machine(cores=8, gpus=4)
    parts = slots.make_slots(2)
    assert [part.environment for part in parts] == [
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "2,3"},
    ]
    assert parts[0].describe() == "cores 0,1,2,3, CUDA_VISIBLE_DEVICES=0,1"


def test_only_visible_gpus_are_divided(machine, monkeypatch):
    machine(cores=8, gpus=4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert [p.environment["CUDA_VISIBLE_DEVICES"] for p in slots.make_slots(2)] == ["1", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [part.environment for part in slots.make_slots(2)] == [{}, {}]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert [part.environment for part in slots.make_slots(2)] == [{}, {}]


@pytest.mark.parametrize(
    "cores, gpus, platforms, message",
    [
        (2, 0, "", "--parallel=3 needs at least 3 CPU cores; there are 2."),
        (4, 2, "", "--parallel=3 needs at least 3 GPUs; there are 2."),
        (4, 0, "tpu", "--parallel=3: the chips of a TPU host are not divided"),
    ],
)
def test_more_parts_than_devices_are_refused(cores, gpus, platforms, message, machine, monkeypatch):
    machine(cores, gpus)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    with pytest.raises(ValueError, match=message):
        slots.make_slots(3)
