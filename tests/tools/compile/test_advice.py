"""Settings that fit: against a closed form of the memory, and by real compilations."""

import math

import jax
import pytest

from bert_jax.config.store import parse
from bert_jax.devices.chips import Chip
from bert_jax.tools.compile import advice, cost, describe
from bert_jax.tools.compile.hlo import Collective, Totals
from bert_jax.tools.compile.plan import knows_steps, plan, programs
from bert_jax.tools.compile.program import Compiled, compile_program
from bert_jax.tools.compile.target import Target
from bert_jax.tools.compile.topology import Topology
from bert_jax.training.run import make_checked_mesh
from tests.tools.compile.conftest import small_config

DATA = {"mesh__data": 8, "mesh__fsdp": 1, "mesh__tensor": 1}
GIB = 1 << 30


def peak_of(program, row: int, state: int) -> int:
    """Bytes: `state` times those of the arguments, and `row` for each row of a microbatch."""
    rows = program.rows // program.microbatches
    return state * sum(program.sizes.values()) + row * rows


def refuse(run, room: int, row: int, state: int = 1) -> list[Compiled]:
    compiled = [Compiled(p, 1.0, peak_of(p, row, state), row * p.rows) for p in programs(run)]
    return [c for c in compiled if not c.fits(room)]


@pytest.fixture
def compilations(monkeypatch):
    """Returns a function that puts a closed form in the place of compilation, with a quarter of the
    bytes of each row if blocks are recomputed; it returns a list of the rows of the microbatches
    that are compiled from then on."""

    def replace(row: int, state: int = 1) -> list[int]:
        tried, runs = [], []

        def programs_of(run):
            runs.append(run)
            return programs(run)

        def compile_program(program):
            tried.append(program.rows // program.microbatches)
            bytes_of_row = row // 4 if runs[-1].config.model.remat else row
            return Compiled(program, 1.0, peak_of(program, bytes_of_row, state))

        monkeypatch.setattr(advice, "programs", programs_of)
        monkeypatch.setattr(advice, "compile_program", compile_program)
        return tried

    return replace


def test_the_largest_microbatch_is_found_with_few_compilations(make_plan, compilations):
    run = make_plan(phases=((16, 1.0, 1024),), **DATA)
    state = sum(programs(run)[0].sizes.values())
    room, tried = state + 1000 * 40, compilations(row=1000)
    lines = []
    refused = refuse(run, room, 1000)
    assert [c.program.name for c in refused] == ["step", "evaluation"]
    found = [*advice.advise(run, Target(jax.devices(), room), refused, lines.append)]
    # An evaluation has no optimizer, whose bytes are room for 16 rows and more.
    split, remat, *others = found
    assert split.changes == {"eval.batch_size": 64, "microbatch_size": 32}
    assert split.flags == "--config.eval.batch_size=64 --config.microbatch_size=32"
    assert tried[:2] == [64, 32]  # more cannot fit, which the whole batch has shown
    recomputed = {"eval.batch_size": 64, "model.remat": True, "microbatch_size": 128}
    assert remat.changes == recomputed and tried[2:6] == [1024, 512, 256, 128]
    assert all("mesh.fsdp" in other.changes for other in others)
    assert len(lines) == len(tried)


def test_the_state_is_split_where_nothing_else_fits(make_plan, compilations):
    """With as few rows as there are devices, parameters and optimizer alone are too much."""
    run = make_plan(phases=((16, 1.0, 64),), **DATA)
    step = programs(run)[0]
    room = 2 * sum(step.sizes.values())
    compilations(row=1, state=3)
    refused = [c for c in refuse(run, room, 1, 3) if c.program.name == "step"]
    target = Target(jax.devices(), room)
    (found,) = advice.advise(run, target, refused, lambda line: None)
    assert found.changes == {"mesh.data": 1, "mesh.fsdp": 8}
    (compiled,) = found.compiled
    assert compiled.program.sizes["optimizer"] < step.sizes["optimizer"] / 4
    assert compiled.fits(room)


def test_none_is_found_where_none_fits(make_plan, compilations):
    run = make_plan(phases=((16, 1.0, 16),), **DATA)
    compilations(row=1000)
    refused = refuse(run, 100, 1000)
    target = Target(jax.devices(), 100)
    assert [*advice.advise(run, target, refused, lambda line: None)] == []


def test_what_is_found_fits_when_it_is_compiled(make_plan):
    """With 90 % of the memory of a step."""
    run = make_plan(phases=((32, 1.0, 128),), **DATA)
    step = compile_program(programs(run)[0])
    room = int(0.9 * step.peak)
    target = Target(jax.devices(), room)
    found = next(advice.advise(run, target, [step], lambda line: None))
    rows = found.changes["microbatch_size"]
    again = compile_program(programs(plan(run.config.replace(found.changes), run.mesh))[0])
    assert again.program.microbatches == 128 // rows > 1
    assert again.peak == found.compiled[0].peak <= room
    text = "\n".join(describe.setting_lines(found, target))
    assert text.startswith(f"\n--config.microbatch_size={rows}\n") and " GiB" in text


def test_what_a_tpu_refuses_says_what_it_needs(make_plan, monkeypatch):
    """The compiler of TPUs does not return a program that does not fit, but names both sizes."""
    reason = (
        "Ran out of memory on HBM, the total memory required for HLO temporaries (64.00G) exceeds"
        " available HBM (15.75G)."
    )
    run = make_plan(phases=((16, 1.0, 256),), **DATA)
    step = programs(run)[0]
    refused = Compiled(step, 1.0, temporaries=64 * GIB, no_room=reason)
    assert refused.room(0) == int(15.75 * GIB)
    tried = []

    def compile_program(program):
        tried.append(program.rows // program.microbatches)
        return Compiled(program, 1.0, peak=GIB)

    monkeypatch.setattr(advice, "compile_program", compile_program)
    target = Target(jax.devices(), 0)
    first = next(advice.advise(run, target, [refused], lambda line: None))
    # A quarter of the temporaries is more than the memory: 32 of 256 rows are the first to try.
    assert first.changes == {"microbatch_size": 32} and tried == [32]


# ------------------------------------------------------------------ the whole run


def test_the_cost_is_that_of_all_steps_at_their_bounds(monkeypatch):
    """1 and 2.5 seconds for 90 and 10 of 100 steps, on 16 devices of 8 chips."""
    config = small_config("tiny", phases=((16, 0.9, 64), (32, 0.1, 64)), **DATA)
    run = plan(config, make_checked_mesh(config))
    chip, steps = Chip(1e15, 1e9), [p for p in programs(run) if p.name == "step"]
    compiled = [
        Compiled(step, 1.0, moved=Totals(size, {"all-reduce": Collective(1, 0)}))
        for step, size in zip(steps, (10**9, 25 * 10**8), strict=True)
    ]
    topology = Topology("v3", (4, 2))
    target = Target(jax.devices(), 0, topology)
    monkeypatch.setattr(Target, "chip", chip)
    found = cost.cost(run, target, compiled)
    assert found is not None and found.steps == 100
    assert found.hours == pytest.approx((90 * 1 + 10 * 2.5) / 3600)
    assert found.chip_hours == pytest.approx(8 * found.hours)
    dollars = describe.cost_as_json(found, 7200.0)["usd"]
    assert dollars == pytest.approx(2 * 8 * 115)
    assert "at least 0.03 hours, 0.26 chip hours, 1,840.00 USD" in describe.cost_line(found, 7200.0)
    assert "USD" not in describe.cost_line(found, 0.0)
    refused = [*compiled[:1], Compiled(steps[1], 1.0, no_room="Used 2G of 1G hbm.")]
    assert cost.cost(run, target, refused) is None


def test_the_length_of_a_run_is_in_its_configuration_or_in_its_data(make_plan):
    run = make_plan(phases=((16, 1.0),), tokens=16_000)
    assert knows_steps(run) and run.steps == math.ceil(16_000 / (16 * 16))
    config = small_config("tiny", epochs=2.0)
    assert not knows_steps(plan(parse(config.to_dict()), make_checked_mesh(config)))
