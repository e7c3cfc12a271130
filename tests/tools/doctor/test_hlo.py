"""What is read from XLA's text, of programs written by hand and of simple compiled ones."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.tools.doctor.hlo import Collective, totals

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


# The same table, read by a fusion within a fusion.
NESTED = """
%row (stack: f32[1000,10], which: s32[]) -> f32[1,10] {
  %stack = f32[1000,10]{1,0} parameter(0)
  %which = s32[] parameter(1)
  ROOT %one = f32[1,10]{1,0} dynamic-slice(%stack, %which), dynamic_slice_sizes={1,10}
}

%product (way: s32[]{:S(6)}, of: f32[1000,10]) -> f32[1,10] {
  %way = s32[] parameter(0)
  %of = f32[1000,10]{1,0} parameter(1)
  %weights = f32[1,10]{1,0} fusion(%of, %way), kind=kLoop, calls=%row
  ROOT %twice = f32[1,10]{1,0} add(%weights, %weights)
}

ENTRY %main (a: f32[1000,10], b: s32[]) -> f32[1,10] {
  %a = f32[1000,10]{1,0:T(8,128)} parameter(0)
  %b = s32[]{:S(6)} parameter(1)
  ROOT %some = f32[1,10]{1,0:T(8,128)} fusion(%b, %a), kind=kOutput, calls=%product
}
"""


def test_what_stays_on_the_chip_and_the_rest_of_a_slice_are_not_counted():
    assert totals(NESTED).off_chip == 10 * 4 + 10 * 4
    assert totals(MEMORIES).off_chip == (4 * 10 * 4 + 4 * 4) + 250 * 4 + 40


def compiled(function, *shapes):
    return totals(jax.jit(function).lower(*shapes).compile().as_text())


def test_loops_count_once_for_each_trip(make_plan):
    mesh, trips = make_plan().mesh, 11
    split = NamedSharding(mesh, PartitionSpec(None, None, ("data", "fsdp", "tensor")))
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp", "tensor"), None))
    x = jax.ShapeDtypeStruct((trips, 32, 64), jnp.float32, sharding=split)
    y = jax.ShapeDtypeStruct((64, 16), jnp.float32, sharding=rows)
    found = compiled(lambda x, y: jax.lax.map(lambda x: jnp.sin(x) @ y, x), x, y)
    assert found.collectives == {"all-reduce": Collective(trips, trips * 32 * 16 * 4)}
    assert (found.loops, found.unknown_trip_counts) == (1, 0)


def test_a_loop_writes_its_results_once():
    """Although each trip has the array of all results."""
    trips, size = 50, 1000
    x = jax.ShapeDtypeStruct((trips, size), jnp.float32)
    found = compiled(lambda x: jax.lax.map(jnp.cumsum, x), x)
    whole = trips * size * 4
    assert 2 * whole <= found.off_chip < 30 * whole  # logarithmically many passes, not 50


LOOP = """
%below (state: (s32[], f32[8])) -> pred[] {
  %end = s32[]{:T(128)} constant(END)
  %state = (s32[]{:T(128)}, f32[8]{0}) parameter(0)
  %count = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %lt = pred[]{:T(512)} compare(%count, %end), direction=LT
}

%trip (state.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.1 = (s32[]{:T(128)}, f32[8]{0}) parameter(0)
  %count.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %x = f32[8]{0} get-tuple-element(%state.1), index=1
  %step = s32[]{:T(128)} constant(STEP)
  %same = s32[]{:T(128)} copy(%count.1)
  %next = s32[]{:T(128)} add(%same, %step)
  %sum = f32[8]{0} all-reduce(%x), replica_groups={}
  ROOT %both = (s32[]{:T(128)}, f32[8]{0}) tuple(%next, %sum)
}

ENTRY %main (x.1: f32[8]) -> (s32[], f32[8]) {
  %x.1 = f32[8]{0} parameter(0)
  %zero = s32[]{:T(128)} constant(START)
  %start = s32[]{:T(128)} copy(%zero)
  %all = (s32[]{:T(128)}, f32[8]{0}) tuple(%start, %x.1)
  ROOT %while = (s32[]{:T(128)}, f32[8]{0}) while(%all), condition=%below, body=%trip
}
"""


@pytest.mark.parametrize(
    ("start", "step", "end", "trips"), [(4, 1, 12, 8), (0, 5, 12, 3), (3, 1, 2, 0)]
)
def test_the_trip_count_of_a_loop_follows_from_its_counter(start, step, end, trips):
    """The compiler for TPUs does not write them."""
    text = LOOP.replace("START", str(start)).replace("STEP", str(step)).replace("END", str(end))
    found = totals(text)
    assert found.collectives == {"all-reduce": Collective(trips, trips * 32)}
    assert not found.unknown_trip_counts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("copy(%zero)", "negate(%zero)"),
        ("add(%same, %step)", "multiply(%same, %step)"),
    ],
)
def test_the_trip_count_of_other_loops_is_not_known(old, new):
    assert old in LOOP
    found = totals(re.sub("START|STEP|END", "7", LOOP.replace(old, new)))
    assert found.unknown_trip_counts == 1 and found.collectives["all-reduce"].count == 1
