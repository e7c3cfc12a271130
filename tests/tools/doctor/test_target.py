"""Names of devices, as people write them: against the tables of the vendor's pages."""

import pytest

from bert_jax.devices.chips import find_chip
from bert_jax.tools.doctor.gpus import GPUS
from bert_jax.tools.doctor.target import TPUS, find_target, has_compiler, parse

# docs.cloud.google.com/tpu/docs/v4, v5e, v5p, v6e, tpu7x: type -> topology, number of chips; and
# other spellings.
NAMES = {
    "v2-8": ("v2:2x2", 4),
    "v3-32": ("v3:4x4", 16),
    "v4-8": ("v4:2x2x1", 4),
    "v4-16": ("v4:2x2x2", 8),
    "v4-64": ("v4:2x4x4", 32),
    "v4-128": ("v4:4x4x4", 64),
    "v5litepod-1": ("v5e:1x1", 1),
    "v5litepod-4": ("v5e:2x2", 4),
    "v5litepod-32": ("v5e:4x8", 32),
    "v5litepod-256": ("v5e:16x16", 256),
    "v5p-256": ("v5p:4x4x8", 128),
    "v5p-512": ("v5p:4x8x8", 256),
    "v6e-16": ("v6e:4x4", 16),
    "tpu7x-8": ("tpu7x:2x2x1", 4),
    "V5E:2x8": ("v5e:2x8", 16),
    "H100-8": ("h100:8", 8),
    "h100:1x8": ("h100:8", 8),
    "h100:4x8": ("h100:4x8", 32),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_names_are_understood(name, expected):
    found = parse(name)
    assert (found.name, found.chips) == expected
    assert parse(found.name) == found
    assert found.meaning.startswith(f"{found.name}, {found.chips} ")


@pytest.mark.parametrize(
    "name",
    ["l4:1", "5e:2x2", "", "v5e4x4", "v5e", "v5e:16", "v4:32", "v5e:2x2x2", "v4:2x2"]
    + ["v5e-12", "v4-9", "v5e-2", "h100", "h100:2x2x2", "h100:0", "v5e-0", "v5e:0x4"],
)
def test_other_names_are_answered_with_those_that_exist(name):
    with pytest.raises(ValueError, match=f"^--topology={name} is not hardware that") as error:
        parse(name)
    assert all(chip in str(error.value) for chip in (*TPUS, *GPUS))


@pytest.mark.skipif(not has_compiler("tpu"), reason="needs the extra tpu")
@pytest.mark.parametrize(
    ("name", "devices", "flops"),
    # jax's devices of v2, v3 and TPU7x are TensorCores; of v4 and v5p, chips.
    [("v2-8", 8, 45e12), ("v3-32", 32, 123e12), ("v4-32", 16, 275e12), ("v5litepod-1", 1, 197e12)]
    + [("v5e-16", 16, 197e12), ("v5p-32", 16, 459e12), ("tpu7x-8", 8, 2307e12)],
)
def test_a_slice_has_its_devices_and_peak_rates(name, devices, flops):
    found = find_target(name)
    assert len(found.devices) == devices and found.num_chips == parse(name).chips
    assert found.chip is not None
    assert found.chip.flops * devices / found.num_chips == pytest.approx(flops)


@pytest.mark.parametrize(("name", "extra"), [("v5e:2x2", "tpu"), ("h100:8", "nvidia")])
def test_without_the_compiler_its_extra_is_named(name, extra, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"\[{extra}\]"):
        find_target(name)


def test_chips_are_found_by_the_longest_name():
    assert (find_chip("TPU v5 lite").flops, find_chip("TPU v5").flops) == (197e12, 459e12)
    assert find_chip("cpu") is None


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_each_gpu_has_its_peak_rates(gpu):
    chip = find_chip(gpu.name)
    assert chip.bandwidth == pytest.approx(gpu.memory_bandwidth * 1e6, rel=0.05)
    assert chip.flops and chip.interconnect
