"""Where the time of a step goes: parts by name, FLOPs and bytes of a program, the table."""

import glob

import jax
import jax.numpy as jnp

from benchmarks import step_profile as profile


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
