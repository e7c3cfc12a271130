"""Where the time of a step goes: parts by name, FLOPs and bytes of a program, the table."""

import glob

import jax
import jax.numpy as jnp
import pytest

from benchmarks import step_profile as profile
from benchmarks.step_profile import Operation, Speeds


@pytest.mark.parametrize(
    "name, part",
    [
        ("jit(train_step)/optimizer/cond/branch_0_fun/mul", "optimizer"),
        ("jit(train_step)/jvp(M)/bert/encoder/layer_0/attention/Dropout_0/while/xor", "dropout"),
        ("jit(train_step)/transpose(jvp(M))/bert/encoder/layer_11/attention/key/dot", "attention"),
        ("jit(train_step)/transpose(jvp(M))/masked_lm/layer_norm/mul", "head and losses"),
        ("", "norms and others"),
    ],
)
def test_the_name_of_an_operation_decides_its_part(name, part):
    assert profile.part_of(name) == part


def test_operations_of_a_compiled_program_and_of_its_trace(tmp_path):
    def two(x, y):
        with jax.named_scope("optimizer"):
            x = jnp.sin(x + 1.0)
        with jax.named_scope("attention"):
            return (x @ y) / 2.0

    x, y = jnp.ones((96, 64)), jnp.ones((64, 32))
    compiled = jax.jit(two).lower(x, y).compile()
    found = profile.operations(compiled.as_text())
    flops = {part: 0.0 for part in ("optimizer", "attention")}
    moved = dict(flops)
    for operation in found.values():
        if operation.part in flops:
            flops[operation.part] += operation.flops
            moved[operation.part] += operation.bytes
    assert flops["optimizer"] == 0 and moved["optimizer"] >= 2 * x.nbytes
    # A fusion and what is in it are operations of the text; the trace has the first alone.
    with jax.profiler.trace(tmp_path):
        compiled(x, y).block_until_ready()
    (path,) = glob.glob(str(tmp_path / "**/*.xplane.pb"), recursive=True)
    events = [(name, seconds) for name, seconds in profile.read_trace(path) if name in found]
    assert {found[name].part for name, _ in events} == {"optimizer", "attention"}
    assert sum(found[name].flops for name, _ in events) == 2 * 96 * 64 * 32
    assert all(seconds > 0 for _, seconds in events)


def test_the_table_has_the_mean_of_the_traced_steps():
    speeds = Speeds(product=1e9, copy=1e6)
    program = {
        "dot.1": Operation("attention", 4e6, 0.0),
        "fusion": Operation("optimizer", 0.0, 1e3),
    }
    events = [("dot.1", 0.006), ("fusion", 0.002), ("while.2", 1.0)] * profile._STEPS
    assert profile.rows_of_parts(events, program, speeds) == {
        "attention": ("6.0", "75%", "4.0", "1.50"),
        "optimizer": ("2.0", "25%", "1.0", "2.00"),
        "all parts": ("8.0", "100%", "5.0", "1.60"),
    }
