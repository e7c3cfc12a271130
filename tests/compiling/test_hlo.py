"""What is read from XLA's text, of programs written by hand and of simple compiled ones."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.compiling.hlo import Collective, totals

COLLECTIVES = """
%all-reduce-of (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %b = f32[8]{0} negate(%a)
}

%add (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %c.1 = f32[] add(%a.1, %b.1)
}

ENTRY %main (x: f32[768,3072]) -> s32[8] {
  %x = f32[768,3072]{1,0} parameter(0)
  %all-reduce.1 = f32[768,3072]{1,0:T(8,128)} all-reduce(%x), replica_groups={}
  %ar.2 = (bf16[16]{0}, f32[2,4]{1,0}) all-reduce(%a, %b), to_apply=%add
  %start = (f32[4]{0}, f32[8]{0}) all-gather-start(%d)
  %done = f32[8]{0} all-gather-done(%start)
  %p = pred[10]{0} collective-permute(%e)
  %p.1 = (f32[9]{0}, f32[9]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%f)
  %fusion = f32[8]{0} fusion(%all-reduce.1), calls=%all-reduce-of
  ROOT %g = s32[8]{0} all-gather(%c), dimensions={0}
}
"""
# A table of 1000 rows of which 4 are read; a copy to the chip of a quarter of 4000 bytes, which is
# read there; and a result of 40 bytes.
MEMORIES = """
%rows (table: f32[1000,10], ids: s32[4]) -> f32[4,10] {
  %table = f32[1000,10]{1,0} parameter(0)
  %ids = s32[4]{0} parameter(1)
  ROOT %taken = f32[4,10]{1,0} gather(%table, %ids), slice_sizes={1,10}
}

ENTRY %main (a: f32[1000,10], b: s32[4], c: f32[1000]) -> f32[10] {
  %a = f32[1000,10]{1,0:T(8,128)} parameter(0)
  %b = s32[4]{0} parameter(1)
  %c = f32[1000]{0} parameter(2)
  %some = f32[4,10]{1,0:T(8,128)S(1)} fusion(%a, %b), kind=kCustom, calls=%rows
  %start = ((f32[1000]{0}), f32[250]{0:S(1)}, s32[]{:S(2)}) slice-start(%c), slice={[0:250]}
  %part = f32[250]{0:S(1)} slice-done(%start)
  ROOT %sum = f32[10]{0} custom-call(%some, %part), custom_call_target="x"
}
"""


def test_collectives_are_counted_by_kind():
    assert totals(COLLECTIVES).collectives == {
        "all-reduce": Collective(2, 768 * 3072 * 4 + 16 * 2 + 8 * 4),
        "all-gather": Collective(2, 8 * 4 + 8 * 4),
        "collective-permute": Collective(2, 10 + 36),
    }


def test_what_stays_on_the_chip_is_not_counted():
    assert totals(MEMORIES).off_chip == (4 * 10 * 4 + 4 * 4) + 250 * 4 + 40


def compiled(function, *shapes):
    return totals(jax.jit(function).lower(*shapes).compile().as_text())


def test_a_sum_reads_its_operands_and_writes_its_result():
    x = jax.ShapeDtypeStruct((1000, 50), jnp.float32)
    assert compiled(lambda x, y: x + jnp.exp(y), x, x).off_chip == 3 * 4 * 50_000


@pytest.mark.parametrize("turns", [3, 11])
def test_loops_count_as_often_as_they_turn(make_plan, turns):
    mesh = make_plan().mesh
    split = NamedSharding(mesh, PartitionSpec(None, None, ("data", "fsdp", "tensor")))
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp", "tensor"), None))
    x = jax.ShapeDtypeStruct((turns, 32, 64), jnp.float32, sharding=split)
    y = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=rows)
    found = compiled(lambda x, y: jax.lax.map(lambda x: jnp.sin(x) @ y, x), x, y)
    assert found.collectives == {"all-reduce": Collective(turns, turns * 32 * 16 * 4)}
    assert (found.loops, found.endless) == (1, 0)


def test_a_loop_writes_its_results_once():
    """Although each turn has the array of all results."""
    turns, size = 50, 1000
    x = jax.ShapeDtypeStruct((turns, size), jnp.float32)
    found = compiled(lambda x: jax.lax.map(jnp.cumsum, x), x)
    whole = turns * size * 4
    assert 2 * whole <= found.off_chip < 30 * whole  # logarithmically many passes, not 50


def test_loops_of_unknown_length_count_once():
    def function(x):
        return jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: 2 * x, x)

    found = compiled(function, jax.ShapeDtypeStruct((1000,), jnp.float32))
    assert (found.loops, found.endless) == (0, 1)
