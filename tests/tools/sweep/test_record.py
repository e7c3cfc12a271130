"""The files of a sweep: the plan, what was started, snapshots."""

import dataclasses
import json
import re
import shutil

import pytest

from bert_jax.tools.cli.sweep import resolve
from bert_jax.tools.sweep import jobs, record
from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table
from tests.tools.sweep.conftest import plan_of

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def make_plan(**overrides) -> record.Plan:
    values = {"data.source": "text:x", "steps": 7, **overrides}
    runs = (
        Run("bert", "configs/tiny.py", values, task="p"),
        Run("ner", "configs/ner.py", {"data.train": "a"}, "bert", 500, 0, "bert", "ner"),
    )
    columns = [Column("ner", "f1", "NER"), Column("p", "loss", "", 1.0, True)]
    tables = [
        Table("T", {"bert": "BERT"}, columns, {"bert": {"NER": 92.4}}, note="n"),
        Table("U", {"bert": "BERT"}, columns, reference={"bert": "bert"}),
    ]
    made = jobs.make_jobs(Sweep("S", runs, tables), resolve, seeds=2)
    return plan_of(*made, tables=tables)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = make_plan()
    record.save_plan(plan, str(tmp_path))
    read = record.load_plan(str(tmp_path))
    assert read.tables == plan.tables and isinstance(read.jobs[0], jobs.Job)
    # JSON has lists in place of tuples.
    assert dataclasses.asdict(read) == json.loads(json.dumps(dataclasses.asdict(plan)))


def test_a_folder_without_a_plan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no sweep: start one with --sweep=FILE"):
        record.load_plan(str(tmp_path))
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(ValueError, match=r"sweep.json is corrupt \('jobs'\): give --sweep=FILE"):
        record.load_plan(str(tmp_path))


def problems(plan, workdir) -> list[str]:
    """Returns what is wrong with each job, or an empty text."""
    found = []
    for job in plan.jobs:
        try:
            record.check_unchanged(job, {job.name: job for job in plan.jobs}, workdir)
            found.append("")
        except ValueError as error:
            found.append(str(error))
    return found


def test_other_settings_are_refused_in_the_run_and_in_what_builds_on_it(tmp_path):
    plan = make_plan()
    for job in plan.jobs:
        record.folder_of(job.name, tmp_path).mkdir(parents=True)
        record.mark_started(job, {job.name: job for job in plan.jobs}, tmp_path)
    record.save_plan(plan, str(tmp_path))
    for same in (plan, record.load_plan(str(tmp_path)), make_plan(**{"log.every": "3"})):
        assert problems(same, tmp_path) == [""] * 4
    _, bert, *ner = problems(make_plan(steps=8), tmp_path)
    changed = "was started with other settings: steps: 7 -> 8. Choose another --workdir, or delete"
    assert changed in bert
    assert all("the settings of bert, which it builds on" in problem for problem in ner)
    # Deleting the run alone is not enough: the fine-tunings started from other parameters.
    (record.folder_of("bert", tmp_path) / "job.json").unlink()
    _, bert, *ner = problems(make_plan(steps=8), tmp_path)
    assert bert == "" and all("the settings of bert" in problem for problem in ner)


def test_a_snapshot_is_a_workdir_with_one_checkpoint(tmp_path):
    run, array = record.folder_of("bert", tmp_path), "checkpoints/5/params/array"
    for step in (5, 10):
        folder = run / f"checkpoints/{step}/params"
        folder.mkdir(parents=True)
        (folder / "array").write_text(f"of step {step}")
        (run / f"checkpoints/{step}.sha256.json").write_text("{}")
    (run / "config.json").write_text("{}")
    (run / "vocab.txt").write_text("a\n")
    target = record.make_snapshot("bert", 5, str(tmp_path))
    assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == {
        *("config.json", "vocab.txt", "checkpoints/5.sha256.json", array),
    }
    assert (target / array).samefile(run / array)
    assert record.make_snapshot("bert", 5, str(tmp_path)) == target
    shutil.rmtree(run / "checkpoints/5")  # the run is deleted, and done again
    (run / "checkpoints/5.sha256.json").unlink()
    (run / "checkpoints/5/params").mkdir(parents=True)
    (run / array).write_text("of another run")
    (run / "checkpoints/5.sha256.json").write_text("{}")
    assert (record.make_snapshot("bert", 5, str(tmp_path)) / array).samefile(run / array)
    message = f"{run} has no checkpoint of step 7 (it has 5, 10): its config.checkpoint"
    with pytest.raises(ValueError, match=re.escape(message)):
        record.make_snapshot("bert", 7, str(tmp_path))
