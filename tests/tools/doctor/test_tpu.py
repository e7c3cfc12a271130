"""Programs for slices of TPUs you do not have, by XLA's compiler for them.

Small models are compared with golden files, as those of CPUs in tests/devices/test_meshes.py; BERT
with what the theory of its mesh says.
"""

import importlib
import pathlib

import jax
import pytest

from bert_jax.config.store import parse
from bert_jax.devices import sharding
from bert_jax.tools.doctor.compiled import Compiled, compile_program
from bert_jax.tools.doctor.cost import bound
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.tools.doctor.target import find_target, has_compiler
from tests.devices import test_meshes
from tests.devices.test_meshes import BASE, MESHES, MODELS, compare_with_golden
from tests.tools.doctor.conftest import small_config

GOLDENS = pathlib.Path(__file__).parent / "goldens"

pytestmark = pytest.mark.skipif(not has_compiler("tpu"), reason="needs the extra tpu")


def compile_step(config, devices, sizes: tuple[int, int, int]) -> Compiled:
    """The step of the first phase."""
    config = config.replace({"dtype": "bfloat16"})
    run = plan(config, sharding.make_mesh(*sizes, devices=devices))
    return compile_program(programs(run)[0])


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="other versions' XLA differs")
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODELS)
def test_small_models_send_what_they_sent(name, mesh, monkeypatch):
    model, changes = MODELS[name]
    config = small_config(model).replace(BASE | changes)
    found = compile_step(config, find_target("v5e:2x4").devices, MESHES[mesh])
    monkeypatch.setattr(test_meshes, "GOLDENS", GOLDENS)
    compare_with_golden(name, mesh, found.moved.collectives)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "topology", "sizes"),
    [
        ("base", "v5e:2x2", (4, 1, 1)),
        ("large", "v5e:4x4", (4, 4, 1)),
        ("large", "v5e:4x4", (1, 8, 2)),
    ],
)
def test_bert_sends_each_parameter_in_each_pass_and_each_gradient_once(name, topology, sizes):
    """At 128 tokens; tensor parallelism also sums hidden states."""
    config = parse(importlib.import_module(f"configs.{name}").get_config())
    changes = {"phases": ((128, 1.0),), "model.pad_vocab_to_multiple_of": 128}
    devices = find_target(topology)
    found = compile_step(config.replace(changes), devices.devices, sizes)
    sent = sum(c.bytes for c in found.moved.collectives.values())
    data, fsdp, tensor = sizes
    parameters = found.program.sizes["parameters"] * fsdp * tensor  # float32; sent as bfloat16
    gathers = 0 if fsdp == 1 else 2
    assert not found.no_room
    assert sent <= parameters * (6 if tensor > 1 else 1.1 + 0.6 * gathers)
    limits = bound(found, devices.chip, len(devices.devices))
    assert max(limits.parts, key=limits.parts.get) == "FLOPs"
