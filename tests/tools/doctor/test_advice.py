"""Settings that fit: against a closed form of the memory, and by real compilations."""

import jax
import pytest

from bert_jax.config.store import parse
from bert_jax.devices.chips import Chip
from bert_jax.tools.doctor import advice
from bert_jax.tools.doctor.compiled import Compiled, compile_program
from bert_jax.tools.doctor.cost import check_cost
from bert_jax.tools.doctor.hlo import Collective, Totals
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.tools.doctor.target import Target, Topology
from bert_jax.training.run import make_checked_mesh
from tests.tools.doctor.conftest import found, replaced, small_config

DATA = {"mesh__data": 8, "mesh__fsdp": 1, "mesh__tensor": 1}
GIB = 1 << 30


def peak_of(program, row: int, state: int) -> int:
    """Bytes: `state` times those of the arguments, and `row` for each row of a microbatch."""
    rows = program.rows // program.microbatches
    return state * sum(program.sizes.values()) + row * rows


def settings(run, room: int, refused) -> list[tuple[str, dict]]:
    """The flags of settings that fit, and their values."""
    findings = advice.advise(run, Target(jax.devices(), room), refused)
    return [(finding.fix, finding.values) for finding in findings if finding.values]


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
    refused = refuse(run, room, 1000)
    assert [c.program.name for c in refused] == ["step", "evaluation"]
    # An evaluation has no optimizer, whose bytes are room for 16 rows and more.
    (flags, _), (_, remat), *others = settings(run, room, refused)
    assert flags == "--config.eval.batch_size=64 --config.microbatch_size=32"
    assert tried[:2] == [64, 32]  # more cannot fit, which the whole batch has shown
    recomputed = {"eval.batch_size": 64, "model.remat": True, "microbatch_size": 128}
    assert remat["changes"] == recomputed and tried[2:6] == [1024, 512, 256, 128]
    assert all("mesh.fsdp" in flags for flags, _ in others)


def test_the_state_is_split_where_nothing_else_fits(make_plan, compilations):
    """With as few rows as there are devices, parameters and optimizer alone are too much."""
    run = make_plan(phases=((16, 1.0, 64),), **DATA)
    step = programs(run)[0]
    room = 2 * sum(step.sizes.values())
    compilations(row=1, state=3)
    refused = [c for c in refuse(run, room, 1, 3) if c.program.name == "step"]
    ((flags, values),) = settings(run, room, refused)
    assert flags == "--config.mesh.data=1 --config.mesh.fsdp=8"
    (compiled,) = values["programs"]
    assert compiled["bytes"]["optimizer"] < step.sizes["optimizer"] / 4 and compiled["fits"]


def test_what_is_found_fits_when_it_is_compiled(make_plan):
    """With 90 % of the memory of a step."""
    run = make_plan(phases=((32, 1.0, 128),), **DATA)
    step = compile_program(programs(run)[0])
    room = int(0.9 * step.peak)
    findings = advice.advise(run, Target(jax.devices(), room), [step])
    values = next(finding.values for finding in findings if finding.values)
    changed = run.config.replace(values["changes"])
    again = compile_program(programs(plan(changed, run.mesh))[0])
    assert again.program.microbatches == 128 // changed.microbatch_size > 1
    assert again.peak == values["programs"][0]["bytes"]["peak"] <= room


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
    (flags, _), *_ = settings(run, 0, [refused])
    # A quarter of the temporaries is more than the memory: 32 of 256 rows are the first to try.
    assert flags == "--config.microbatch_size=32" and tried[0] == 32


# ------------------------------------------------------------------ the whole run


def test_the_cost_is_that_of_all_steps_at_their_bounds(monkeypatch):
    """1 and 2.5 seconds for 90 and 10 of 100 steps, on 16 devices of 8 chips."""
    config = small_config("tiny", phases=((16, 0.9, 64), (32, 0.1, 64)), **DATA)
    run = plan(config, make_checked_mesh(config))
    chip, steps = Chip(1e15, 1e9), [p for p in programs(run) if p.name == "step"]
    compiled = [
        replaced(Compiled(p, 1.0), moved=Totals(size, {"all-reduce": Collective(1, 0)}))
        for p, size in zip(steps, (10**9, 25 * 10**8), strict=True)
    ]
    target = Target(jax.devices(), 0, Topology("v3", (4, 2)))
    monkeypatch.setattr(Target, "chip", chip)
    (finding,) = check_cost(run, target, compiled, 7200.0)
    hours = (90 * 1 + 10 * 2.5) / 3600
    expected = {"steps": 100, "hours": hours, "chip_hours": 8 * hours, "usd": 2 * 8 * 115}
    assert finding.values == pytest.approx(expected)
    assert "at least 0.03 hours, 0.26 chip hours, 1,840.00 USD: 100 steps" in finding.what
    (finding,) = check_cost(run, target, compiled, 0.0)
    assert "USD" not in finding.what
    refused = [*compiled[:1], Compiled(steps[1], 1.0, no_room="Used 2G of 1G hbm.")]
    assert [*check_cost(run, target, refused, 0.0)] == []
    by_data = plan(parse(small_config("tiny", epochs=2.0).to_dict()), run.mesh)
    found(check_cost(by_data, target, compiled, 0.0), "note", "length of the run is not known")
