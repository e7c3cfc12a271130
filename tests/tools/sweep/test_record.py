"""The files of a sweep: the plan, what was started, what the output says, snapshots."""

import dataclasses
import json
import re

import pytest

from bert_jax.tools.cli.sweep import resolve
from bert_jax.tools.sweep import jobs, record, snapshots
from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table
from bert_jax.tools.sweep.record import Plan
from tests.tools.sweep.conftest import plan_of, script

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def make_plan(**overrides) -> Plan:
    runs = (
        Run(
            "bert", "configs/tiny.py", {"data.source": "text:x", "steps": 7, **overrides}, task="p"
        ),
        Run("ner", "configs/ner.py", {"data.train": "a"}, "bert", 500, 0, "bert", "ner"),
    )
    columns = (Column("ner", "f1", "NER"), Column("p", "loss", "", 1.0, True))
    tables = (
        Table("T", {"bert": "BERT"}, columns, {("bert", "NER"): 92.4}, note="n"),
        Table("U", {"bert": "BERT"}, columns, reference={"bert": "bert"}),
    )
    made = jobs.make_jobs(Sweep("S", runs, tables), resolve, seeds=2)
    return Plan("S", "note", made, tables, "Made by hand.")


def by_name(plan):
    return {job.name: job for job in plan.jobs}


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = make_plan()
    record.save_plan(plan, str(tmp_path))
    read = record.load_plan(str(tmp_path))
    assert read.tables == plan.tables and (read.title, read.note, read.source) == (
        *("S", "note", "Made by hand."),
    )
    for job, expected in zip(read.jobs, plan.jobs, strict=True):
        assert job.command("D") == expected.command("D")
        for name in ("needs", "stage", "snapshot", "system", "task", "seed"):
            assert getattr(job, name) == getattr(expected, name)
    assert [[job.name for job in stage] for stage in read.stages()] == [
        [plan.jobs[0].name],
        ["bert"],
        ["ner-seed0", "ner-seed1"],
    ]


def test_a_folder_without_a_plan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no sweep: start one with --sweep=FILE"):
        record.load_plan(str(tmp_path))
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(ValueError, match=r"sweep.json is corrupt \('title'\): give --sweep=FILE"):
        record.load_plan(str(tmp_path))


def start_all(plan, workdir):
    for job in plan.jobs:
        record.folder_of(job.name, workdir).mkdir(parents=True)
        record.mark_started(job, by_name(plan), workdir)


def problem(plan, name, workdir) -> str:
    try:
        record.check_unchanged(by_name(plan)[name], by_name(plan), workdir)
    except ValueError as error:
        return str(error)
    return ""


def test_other_settings_are_refused_in_the_run_and_in_what_builds_on_it(tmp_path):
    plan = make_plan()
    start_all(plan, tmp_path)
    record.save_plan(plan, str(tmp_path))
    for same in (plan, record.load_plan(str(tmp_path)), make_plan(**{"log.every": "3"})):
        assert [problem(same, job.name, tmp_path) for job in same.jobs] == [""] * 4
    changed = make_plan(steps=8)
    assert (
        "was started with other settings: steps: 7 -> 8. Choose another --workdir, or delete"
        in (problem(changed, "bert", tmp_path))
    )
    assert "the settings of bert, which it builds on" in problem(changed, "ner-seed0", tmp_path)
    # Deleting the run alone is not enough: the fine-tunings started from other parameters.
    (record.folder_of("bert", tmp_path) / "job.json").unlink()
    assert problem(changed, "bert", tmp_path) == ""
    assert "the settings of bert" in problem(changed, "ner-seed1", tmp_path)


def test_a_start_removes_the_mark_of_a_failure(tmp_path):
    job = script("a")
    record.mark_failed("a", tmp_path, "exit code 1")
    assert record.seconds_since_failure("a", tmp_path) < 60
    record.mark_started(job, {"a": job}, tmp_path)
    assert record.seconds_since_failure("a", tmp_path) is None


LOG = """$ python -m bert_jax.main ...
phase      steps 0-4000: 32 x 64 tokens a step
1,552,898 parameters
step  200/4000  loss 7.608  MLM accuracy 6.6%
Stopped by SIGTERM after step 300, which is saved. The same command resumes from here.
$ python -m bert_jax.main ...
1,552,898 parameters
step  400/4000  loss 6.865

step 4000  held-out  loss 6.086
"""


def test_the_output_of_a_run_has_its_length_and_size(tmp_path):
    assert record.total_steps("a", tmp_path) is None
    record.folder_of("a", tmp_path).mkdir(parents=True)
    record.log_of("a", tmp_path).write_text(LOG)
    assert record.total_steps("a", tmp_path) == 4000
    assert record.num_parameters("a", tmp_path) == 1_552_898
    assert record.last_lines("a", tmp_path, 2) == LOG.replace("\n\n", "\n").splitlines()[-2:]
    assert record.was_stopped(LOG) and not record.was_stopped(LOG.partition("Stopped")[0])


def test_an_incomplete_last_line_of_metrics_is_left_out(tmp_path):
    folder = record.folder_of("a", tmp_path)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert record.read_rows("a", tmp_path) == [{"step": 1}, {"step": 2}]


# ------------------------------------------------------------------------------------ snapshots


def make_checkpoints(workdir, *steps):
    run = record.folder_of("bert", workdir)
    for step in steps:
        folder = run / "checkpoints" / str(step) / "params"
        folder.mkdir(parents=True)
        (folder / "array").write_text(f"of step {step}")
        (run / "checkpoints" / f"{step}.sha256.json").write_text("{}")
    (run / "config.json").write_text("{}")
    (run / "vocab.txt").write_text("a\n")
    return run


def test_a_snapshot_is_a_workdir_with_one_checkpoint(tmp_path):
    run = make_checkpoints(tmp_path, 5, 10)
    target = snapshots.make("bert", 5, str(tmp_path))
    found = {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()}
    assert found == {
        *("config.json", "vocab.txt", "checkpoints/5.sha256.json", "checkpoints/5/params/array"),
    }
    array = target / "checkpoints/5/params/array"
    assert array.read_text() == "of step 5"
    assert array.stat().st_ino == (run / "checkpoints/5/params/array").stat().st_ino
    assert snapshots.make("bert", 5, str(tmp_path)) == target


def test_a_checkpoint_that_was_not_kept_is_named(tmp_path):
    run = make_checkpoints(tmp_path, 5, 10)
    message = re.escape(f"{run} has no checkpoint of step 7 (it has 5, 10): its config.checkpoint")
    with pytest.raises(ValueError, match=message):
        snapshots.make("bert", 7, str(tmp_path))


def test_a_run_without_its_snapshot_is_a_failure_of_that_run(tmp_path):
    from bert_jax.tools.sweep import schedule
    from bert_jax.tools.sweep.progress import Board
    from bert_jax.tools.sweep.slots import Slot

    make_checkpoints(tmp_path, 5)
    job = dataclasses.replace(script("a", "print('not reached')"), snapshot=("bert", 7))
    plan = plan_of(job)
    workdir = str(tmp_path)
    outcome = schedule.run_jobs(plan.jobs, by_name(plan), [Slot(0)], workdir, Board(workdir))
    assert "has no checkpoint of step 7" in outcome.failed["a"]
    assert not record.log_of("a", workdir).exists()
    assert json.loads((record.folder_of("a", workdir) / "failed.json").read_text())["reason"]
