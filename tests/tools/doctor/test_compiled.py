"""What is read from compiled programs: against closed forms, and programs written by hand."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from bert_jax.devices.chips import Chip
from bert_jax.tools.doctor.compiled import Compiled, compile_program
from bert_jax.tools.doctor.cost import bound, describe
from bert_jax.tools.doctor.hlo import Collective, Totals
from bert_jax.tools.doctor.programs import programs
from bert_jax.tools.doctor.target import Target, find_target
from tests.tools.doctor.conftest import replaced


def test_gradients_are_summed_over_the_data(make_plan):
    """With data parallelism alone, a step sends each gradient once, and an evaluation only sums."""
    run = make_plan(phases=((16, 1.0),), mesh__data=8, mesh__fsdp=1, mesh__tensor=1)
    step, evaluation = map(compile_program, programs(run))
    parameters = step.program.sizes["parameters"]
    reduced = step.moved.collectives["all-reduce"].bytes
    assert parameters <= reduced <= 1.1 * parameters + 4096
    assert sum(c.bytes for c in evaluation.moved.collectives.values()) < 1000


MEASURE = """
import ctypes, json, pathlib, re, sys
import jax
import jax.numpy as jnp
from bert_jax.devices.memory import peak_of_program
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.training.run import make_checked_mesh
from tests.tools.doctor.conftest import small_config

def resident(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"^{name}:\\s+(\\d+) kB$", status, re.MULTILINE)[1])

def zeros(x):
    is_abstract = isinstance(x, jax.ShapeDtypeStruct)
    return jnp.zeros(x.shape, x.dtype, device=x.sharding) if is_abstract else x

config = small_config("tiny", **json.loads(sys.argv[1]))
step = programs(plan(config, make_checked_mesh(config)))[0]
compiled = step.function.lower(*step.arguments).compile()
# What the compiler has freed would be used again, and not counted.
ctypes.CDLL(None).malloc_trim(0)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc_pid_clear_refs(5)
before = resident("VmRSS")
jax.block_until_ready(compiled(*jax.tree.map(zeros, step.arguments)))
print(peak_of_program(compiled), resident("VmHWM") - before)
"""
SIZEABLE = {
    "mesh__data": 1,
    "mesh__fsdp": 1,
    "mesh__tensor": 1,
    "global_batch_size": 64,
    "phases": ((256, 1.0),),
    "model__hidden_size": 128,
    "model__intermediate_size": 512,
    "model__num_layers": 2,
    "model__max_position_embeddings": 256,
    "model__vocab_size": 2000,
}


@pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_the_peak_is_that_of_a_run():
    """In a process of its own, whose memory is not that of other tests.

    XLA does not count what the matrix products of YNNPACK take for themselves.
    """
    without = "--xla_cpu_experimental_ynn_fusion_type="
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": without}
    command = [sys.executable, "-c", MEASURE, json.dumps(SIZEABLE)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    estimated, measured = map(int, done.stdout.split())
    assert estimated > 30e6
    assert measured == pytest.approx(estimated, rel=0.2)


def test_the_bound_is_the_slowest_part(make_plan):
    sent = {"all-reduce": Collective(1, 8 * 10**8), "all-gather": Collective(2, 8 * 10**8)}
    found = Compiled(programs(make_plan())[0], 1.0, flops=2e12, accessed=1e15)
    found = replaced(found, moved=Totals(10**9, sent))
    limits = bound(found, Chip(1e12, 1e9, 1e9), devices=8)
    assert limits.parts == pytest.approx({"FLOPs": 2.0, "memory": 1.0, "links": 2.1})
    assert limits.seconds == pytest.approx(2.1)
    assert limits.mfu == pytest.approx(found.program.flops / 8 / 1e12 / 2.1)
    assert bound(found, Chip(1e12), devices=8).parts == {"FLOPs": 2.0}  # no other rate is known


def test_lines_and_values_have_the_same_numbers_and_room_decides(make_plan):
    found, devices = compile_program(programs(make_plan())[0]), find_target("")
    finding = describe(found, devices)
    assert finding.level == "ok" and finding.what.startswith("step, 16 x 16 tokens: compiled in")
    assert finding.values["fits"] is True and finding.values["bound"] is None
    assert finding.values["bytes"]["peak"] == found.peak
    assert found.peak >= sum(found.program.sizes.values()) + found.temporaries
    sent = found.moved.collectives["all-reduce"]
    assert finding.values["moved"]["collectives"]["all-reduce"] == dataclasses.asdict(sent)
    assert finding.lines[0].startswith("memory       fits: ")
    assert f"\nall-reduce         {sent.count:>4}, " in "\n".join(finding.lines)

    assert found.fits(found.peak) and found.fits(0)
    small = Target(jax.devices(), found.peak - 1)
    finding = describe(found, small)
    assert finding.level == "problem"
    assert finding.lines[0].startswith("memory       does not fit: 0.00 of 0.00 GiB")
    refused = Compiled(found.program, 1.0, no_room="Used 2G of 1G hbm.")
    assert describe(refused, small).lines[0] == "memory       does not fit: Used 2G of 1G hbm."
    assert not refused.fits(0)
