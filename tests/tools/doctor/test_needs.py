"""Memory, disk and time: against arithmetic and real runs."""

import re

import jax
import pytest

from bert_jax.tools.doctor import finding, measured, needs
from bert_jax.tools.doctor.examine import examine
from bert_jax.tools.doctor.measured import Evaluated
from bert_jax.tools.doctor.trial import open_trial
from bert_jax.training.state import abstract_params
from tests.tools.doctor.conftest import bad, found, replaced


@pytest.fixture(scope="module")
def trial(make_config, tmp_path_factory):
    return open_trial(make_config(), "", str(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def step(trial):
    """What was measured of the only shape of the corpus."""
    (only,) = measured.Workbench(trial, 2).measure(measured.all_shapes(trial.run))
    return only


def test_a_step_is_executed_and_its_state_is_parameters_and_two_moments(trial, step):
    params = abstract_params(trial.run.task_at(trial.run.phases[0]), trial.run.mesh)
    numbers = sum(x.size for x in jax.tree.leaves(params))
    assert step.state == pytest.approx(3 * 4 * numbers, rel=0.01)
    assert step.peak > step.state
    assert step.rows == step.shape.rows
    assert 0 < step.step_seconds < 5


def test_a_step_that_does_not_fit_is_measured_with_fewer_rows(trial, step, monkeypatch):
    """Its time is multiplied, its memory is that of all rows."""
    room = (step.peak + step.state) // 2
    monkeypatch.setattr(measured, "free_memory", lambda: room)
    (part,) = measured.Workbench(trial, 1).measure([step.shape])
    assert part.peak == step.peak
    assert part.rows == 8 and part.step_seconds > 0  # 8 devices
    assert "from 8 x 32 tokens" in needs.describe_shape(part).what
    monkeypatch.setattr(needs, "free_memory", lambda: step.peak * 7 // 8)
    monkeypatch.setattr(needs, "used_memory", lambda: 0)
    part = replaced(part, process=0, program=0)
    assert "--config.microbatch_size=" in found(needs.check_memory(trial, [part]), "problem").fix


def test_a_state_that_does_not_fit_has_no_time(trial, step, monkeypatch):
    monkeypatch.setattr(needs, "free_memory", lambda: 1000)
    monkeypatch.setattr(needs, "used_memory", lambda: 0)
    nothing = replaced(step, step_seconds=0.0)
    assert "do not fit" in found(needs.check_memory(trial, [nothing]), "problem").fix
    found(needs.check_time(trial, [nothing], {}), "note", "is not estimated")


@pytest.mark.parametrize(
    ("free", "level", "text"),
    [
        (10**9, "ok", "about 4.0 GB of memory: 2.0 GB for"),
        (390_000_000, "warning", "it can have 4.1 GB"),  # 8 of them, and the process
        (0, "ok", "200 MB for compiled programs, the rest for the process itself; the free memory"),
    ],
)
def test_the_process_and_its_programs_count_on_cpus(free, level, text, trial, step, monkeypatch):
    large = {"peak": 125_000_000, "checkpoint": 10**9}  # on each of 8 devices
    step = replaced(step, process=8 * 10**8, program=10**8, **large)
    monkeypatch.setattr(needs, "used_memory", lambda: 10**9)
    monkeypatch.setattr(needs, "free_memory", lambda: free)
    found(needs.check_memory(trial, [step], [Evaluated(program=10**8)]), level, text)


def test_accelerators_have_memory_of_their_own_and_evaluations_may_need_most(
    trial, step, monkeypatch
):
    monkeypatch.setattr(needs, "free_memory", lambda: 10**9)
    findings = needs.check_memory(trial, [step], [replaced(Evaluated(), peak=10**10)])
    line = found(findings, "problem", "160.0 GB for evaluations")
    assert line.fix == "--config.eval.batch_size=8"
    monkeypatch.setattr(needs, "device_memory", lambda: 10**9)
    found(needs.check_memory(trial, [step]), "ok", finding.in_bytes(step.peak))


@pytest.mark.parametrize("part, level", [(0.9, "problem"), (1.06, "warning"), (100, "ok")])
def test_disks(part, level, make_config, trial, monkeypatch):
    def check():
        (only,) = needs.check_disk(make_config(), "runs/x", trial, 10**9)
        return only

    needed = float(re.search(r"About ([\d.]+) GB", check().what)[1]) * 1e9
    monkeypatch.setattr(needs, "free_space", lambda _: int(part * needed))
    assert check().level == level
    assert "1 checkpoints of 1.0 GB" in check().what and "of data, twice that" in check().what


def test_the_whole_time_is_the_sum_of_its_parts(trial, step):
    fake = replaced(step, compile_seconds=5.0, step_seconds=3.0)
    assert needs.describe_shape(fake).what.startswith(
        "32 x 32 tokens: compiled in 5 s; 3 s per step"
    )
    (total,) = needs.check_time(trial, [fake], {})
    assert "starting and compiling 17 seconds, steps 15 minutes" in total.what  # 300 x 3 s
    (rest,) = needs.check_time(trial, [fake], {}, 200)
    assert "The 100 steps that are left will take" in rest.what and "steps 5 minutes" in rest.what
    evaluated = {trial.run.phases[0]: replaced(Evaluated(), compile_seconds=5.0)}
    (more,) = needs.check_time(trial, [fake], evaluated)
    assert "compiling 22 seconds" in more.what and "evaluations" in more.what


def test_each_phase_and_each_seed_takes_its_time(make_config, tmp_path):
    opened = open_trial(make_config("classification", seeds=3), "", str(tmp_path / "files"))
    (shape,) = measured.all_shapes(opened.run)
    (total,) = needs.check_time(opened, [measured.Measured(shape, (), step_seconds=1000.0)], {})
    steps = re.search(r"about ([\d.]+) hours.*steps ([\d.]+) hours.*3 seeds", total.what)
    assert float(steps[1]) == pytest.approx(3 * float(steps[2]), rel=0.1)

    (tmp_path / "corpus").mkdir()
    config = make_config(phases=((16, 0.5), (32, 0.5)))
    opened = open_trial(config, "", str(tmp_path / "corpus"))
    both = zip(measured.all_shapes(opened.run), (2.0, 4.0), strict=True)
    fakes = [measured.Measured(shape, (), step_seconds=seconds) for shape, seconds in both]
    (total,) = needs.check_time(opened, fakes, {})
    assert "steps of 16 tokens 5 minutes, steps of 32 tokens 10 minutes" in total.what


def test_a_good_run_is_measured_to_its_end(make_config):
    findings = list(examine(make_config("classification"), "", 1))
    assert bad(findings) == []
    assert "compiling" in found(findings, "ok", "The run will take about").what
