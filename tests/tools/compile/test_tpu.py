"""Programs for slices of TPUs that are not here, by XLA's compiler for them.

What is silently copied to all chips changes the collectives, which are compared with golden files.
"""

import importlib
import importlib.util
import os
import pathlib

import pytest

from bert_jax.config.store import parse
from bert_jax.tools.compile import target
from bert_jax.tools.compile.plan import plan, programs
from bert_jax.tools.compile.program import Compiled, compile_program
from bert_jax.training.run import make_checked_mesh
from tests.tools.compile.conftest import CONFIGS, small_config

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "tpu"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra tpu"
)


def compile_update(config, topology: str, mesh: tuple[int, int, int]) -> Compiled:
    """The step of the first phase."""
    axes = dict(zip(("mesh.data", "mesh.fsdp", "mesh.tensor"), mesh, strict=True))
    config = config.replace({"dtype": "bfloat16", **axes})
    run = plan(config, make_checked_mesh(config, target.find(topology).devices))
    return compile_program(programs(run)[0])


def compare_with_golden(name: str, found: Compiled) -> None:
    lines = [
        f"{kind} {value.count} {value.bytes}\n" for kind, value in found.moved.collectives.items()
    ]
    path = GOLDENS / f"{name.replace(':', '_')}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
    assert "".join(lines) == path.read_text(), "if it is right: UPDATE_GOLDENS=1 pytest"


@pytest.mark.parametrize("name", CONFIGS)
def test_small_models_are_split_over_fsdp_and_tensor(name):
    found = compile_update(small_config(name), "v5e:2x2", (1, 2, 2))
    compare_with_golden(f"{name}-v5e", found)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5p:2x2x2", "v6e:16x16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_small_models_are_split_over_all_axes(name, topology):
    config = small_config(name, global_batch_size=256, phases=((16, 1.0),))
    found = compile_update(config, topology, (-1, 2, 2))
    compare_with_golden(f"{name}-{topology.partition(':')[0]}", found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "mesh"),
    [
        ("v5e:2x2", (4, 1, 1)),
        ("v5e:2x2", (1, 4, 1)),
        ("v5e:2x2", (1, 2, 2)),
        ("v5p:2x2x2", (2, 2, 2)),
        ("v6e:16x16", (64, 2, 2)),
    ],
)
@pytest.mark.parametrize("name", ["base", "large"])
def test_base_and_large_send_what_their_mesh_makes_them(name, topology, mesh):
    """With blocks in a loop: one is compiled, instead of 12 or 24."""
    config = parse(importlib.import_module(f"configs.{name}").get_config())
    config = config.replace({"model.scan_layers": True})
    # libtpu 0.0.42.1 crashes with both for 64 x 2 x 2 chips of a v6e.
    config = config.replace({"model.remat": not topology.startswith("v6e")})
    found = compile_update(config, topology, mesh)
    assert not found.no_room
    if mesh[0] == 4:  # each gradient is sent once; some are bfloat16
        parameters = found.program.sizes["parameters"]  # as float32
        assert parameters / 2 <= found.moved.collectives["all-reduce"].bytes <= parameters
    sizes = "x".join(map(str, mesh))
    compare_with_golden(f"{name}-{topology.partition(':')[0]}-{sizes}", found)
