"""What is read from compiled programs: against closed forms, and programs written by hand."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from bert_jax.devices.chips import Chip, find_chip
from bert_jax.tools.compile import describe, target
from bert_jax.tools.compile.hlo import Collective, Totals
from bert_jax.tools.compile.largest import largest_microbatch, microbatches
from bert_jax.tools.compile.plan import programs
from bert_jax.tools.compile.program import Compiled, bound, compile_program
from tests.tools.compile.conftest import CONFIGS

GOLDENS = pathlib.Path(__file__).parent / "goldens"


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_summed_over_the_data(name, make_plan):
    """With data parallelism alone, a step sends each gradient once, and little else.

    The directions of ELMo share the layers below them, whose gradients are summed for each.
    """
    times = 2 if name == "elmo" else 1
    run = make_plan(name, mesh__data=8, mesh__fsdp=1, mesh__tensor=1)
    first = programs(run)[0]
    found = compile_program(first)
    reduced = found.moved.collectives["all-reduce"].bytes
    assert first.sizes["parameters"] <= reduced
    assert reduced <= 1.1 * times * first.sizes["parameters"] + 4096
    assert found.fits(0) and found.peak > 0 and not found.no_room


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="XLA of other versions differs")
@pytest.mark.parametrize("name", CONFIGS)
def test_collectives_are_those_of_the_golden_file(name, make_plan):
    """Over data, fsdp and tensor: what is silently copied to all devices changes them."""
    lines = [
        f"{program.name} {program.length}: {kind} {found.count} {found.bytes}\n"
        for program in programs(make_plan(name))
        for kind, found in compile_program(program).moved.collectives.items()
    ]
    path = GOLDENS / f"{name.replace(':', '_')}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text("".join(lines))
    assert "".join(lines) == path.read_text(), "if it is right: UPDATE_GOLDENS=1 pytest"


def test_an_evaluation_sends_only_sums(make_plan):
    run = make_plan(mesh__data=8, mesh__fsdp=1, mesh__tensor=1)
    found = compile_program(programs(run)[1])
    assert sum(c.bytes for c in found.moved.collectives.values()) < 1000


def test_the_peak_has_the_arguments_and_the_temporaries(make_plan):
    run = make_plan()
    found = compile_program(programs(run)[0])
    assert found.peak >= sum(found.program.sizes.values()) + found.temporaries


MEASURE = """
import json, sys
import jax
from bert_jax.tools.compile.measure import measured_peak
from bert_jax.tools.compile.plan import programs
from bert_jax.tools.compile.program import compile_program
from tests.tools.compile.conftest import small_config
from bert_jax.tools.compile.plan import plan
from bert_jax.training.run import make_checked_mesh

config = small_config("tiny", **json.loads(sys.argv[1]))
for program in programs(plan(config, make_checked_mesh(config))):
    found = compile_program(program)
    print(found.peak, measured_peak(found))
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
    for line in done.stdout.splitlines():
        estimated, measured = map(int, line.split())
        assert estimated > 30e6
        assert measured == pytest.approx(estimated, rel=0.2)


def make_compiled(make_plan, **values):
    return Compiled(programs(make_plan())[0], 1.0, **values)


def test_the_bound_is_the_slowest_part(make_plan):
    found = make_compiled(
        make_plan,
        flops=2e12,
        accessed=1e15,
        moved=Totals(
            10**9,
            {"all-reduce": Collective(1, 8 * 10**8), "all-gather": Collective(2, 8 * 10**8)},
        ),
    )
    limits = bound(found, Chip(1e12, 1e9, 1e9), devices=8)
    assert limits.parts == pytest.approx({"FLOPs": 2.0, "memory": 1.0, "links": 2.1})
    assert limits.seconds == pytest.approx(2.1)
    assert limits.mfu == pytest.approx(found.program.flops / 8 / 1e12 / 2.1)


def test_a_chip_whose_rates_are_not_known_is_bound_by_its_flops(make_plan):
    found = make_compiled(make_plan, flops=2e12, moved=Totals(10**15))
    assert bound(found, Chip(1e12), devices=8).parts == {"FLOPs": 2.0}


def test_chips_are_found_by_the_longest_name():
    assert find_chip("TPU v5 lite").flops == 197e12
    assert find_chip("TPU v5").flops == 459e12
    assert find_chip("NVIDIA H100 80GB HBM3").bandwidth == 3.35e12
    assert find_chip("cpu") is None


def test_room_decides(make_plan):
    assert make_compiled(make_plan, peak=100).fits(100)
    assert not make_compiled(make_plan, peak=101).fits(100)
    assert not make_compiled(make_plan, no_room="Used 2G of 1G hbm.").fits(0)


def test_microbatches_divide_the_batch_and_the_mesh():
    assert list(microbatches(24, 4)) == [4, 8, 12, 24]


def test_the_largest_microbatch_that_fits_is_found(make_plan):
    run = make_plan(phases=((16, 1.0, 64),))
    (phase,) = run.phases
    peaks = {size: compile_program(programs(run, size)[0]).peak for size in microbatches(64, 4)}
    sizes = sorted(peaks)
    assert peaks[sizes[-1]] > peaks[sizes[0]]
    room = peaks[sizes[2]]
    expected = max(size for size in sizes if peaks[size] <= room)
    lines = []
    found = largest_microbatch(run, phase, room, lines.append)
    assert found.peak == peaks[expected] and len(lines) <= 3
    with pytest.raises(ValueError, match="No microbatch of 16 tokens fits"):
        largest_microbatch(run, phase, min(peaks.values()) - 1, lines.append)


def test_lines_and_json_have_the_same_numbers(make_plan):
    devices = target.find("")
    found = compile_program(programs(make_plan())[0])
    content = describe.as_json(found, devices)
    assert content["fits"] is True and content["devices"] == 8 and content["bound"] is None
    assert content["bytes"]["peak"] == found.peak
    text = "\n".join(describe.lines(found, devices))
    assert "step, 16 x 16 tokens" in text and "all-reduce" in text and "fits" in text


@pytest.mark.parametrize(
    "name", ["v5e", "5e:2x2", "v5e:2", "v5e:2x2x2x2", "gpu:2x2", "h100", "h100:2x2x2", "v100:8"]
)
def test_other_names_of_devices_are_refused(name):
    with pytest.raises(ValueError, match="is neither of a slice of TPUs .* or NVIDIA GPUs"):
        target.find(name)


@pytest.mark.parametrize(("name", "extra"), [("v5e:2x2", "tpu"), ("h100:8", "nvidia")])
def test_without_the_compiler_its_extra_is_named(name, extra, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"\[{extra}\]"):
        target.find(name)


def test_no_gpus_are_refused():
    with pytest.raises(ValueError, match=r"^--topology=h100:0 has no GPU: one is h100:1\.$"):
        target.find("h100:0")
