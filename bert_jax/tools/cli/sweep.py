"""Runs many trainings that depend on each other, and prints tables of their results.

    bert_jax sweep --sweep=configs/sweeps/table5.py:mini --workdir=DIR \\
        --set corpus=text:FILE --set data=FOLDER --seeds=3
    bert_jax sweep --workdir=DIR                 resumes it
    bert_jax sweep --workdir=DIR --report        prints the tables again
    bert_jax sweep --sweep=FILE --set NAME=VALUE --dry_run

--config.FIELD=VALUE changes a field of all runs. The exit code is 1 if a run failed, and 130 or 143
after Ctrl-C or SIGTERM, after which the same command resumes.
"""

import argparse
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import experiments
from bert_jax.config.editing import written
from bert_jax.config.group import unflatten
from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.data import init_from
from bert_jax.files.atomic import own_parts, write_text
from bert_jax.files.buckets import address_of
from bert_jax.files.errors import UserError
from bert_jax.tools.cli import command_line
from bert_jax.tools.cli.command_line import OVERRIDES, Flag
from bert_jax.tools.sweep import jobs, page, record, report, schedule, slurm
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.plan import load_sweep
from bert_jax.tools.sweep.record import Plan
from bert_jax.tools.sweep.slots import make_slots

_logger = logging.getLogger(__name__)

FLAGS = (
    Flag("sweep", "", "Sweep file, such as configs/sweeps/table5.py; see docs/sweeps.md."),
    Flag("set", [], "NAME=VALUE, a setting of the sweep file; may be given several times."),
    Flag("workdir", "", "Folder of the sweep: plan, runs, results."),
    Flag("seeds", 0, "Seeds of each fine-tuning; 0: 1.", minimum=0),
    Flag("parallel", 1, "Runs at the same time, each on a part of the devices.", minimum=1),
    Flag("only", "", "Regular expression: only runs with such names, and what they need."),
    Flag("dry_run", False, "Validate all runs, print their commands, and run nothing."),
    Flag("report", False, "Print the tables of the complete runs, and run nothing."),
    Flag("slurm", False, "Print a script for bash that submits job arrays to SLURM."),
    Flag("sbatch", "", "With --slurm: options of sbatch, such as '--gpus=1 --time=4:00:00'."),
    Flag("stage", -1, "Of a cluster's job: the stage.", minimum=-1),
    Flag("number", -1, "Of a cluster's job: its number in the stage.", minimum=-1),
    OVERRIDES,
)


def run(flags: argparse.Namespace) -> None:
    workdir = flags.workdir
    if not workdir and not flags.dry_run:
        raise UserError("--workdir is missing: the folder that the sweep is kept in.")
    if address := address_of(workdir):
        raise UserError(
            f"--workdir={address}: the runs of a sweep share files, which a bucket does not: give a"
            " folder of a file system. Text, data and vocabularies may be in buckets."
        )
    plan = _plan(flags)
    if flags.report:
        _print_report(plan, workdir)
        return
    selected = jobs.select(plan.jobs, flags.only) if flags.only else plan.jobs
    missing = _missing_files(selected)
    if flags.dry_run:
        _print_plan(plan, selected, missing, workdir or "DIR")
        return
    by_name = {job.name: job for job in plan.jobs}
    for job in selected:
        record.check_unchanged(job, by_name, workdir)
    if flags.sweep:
        record.save_plan(plan, workdir)
    if flags.slurm:
        limit = flags.parallel if flags.parallel > 1 else 0
        print(slurm.script(plan.jobs, workdir, shlex.split(flags.sbatch), limit), end="")
        return
    if flags.stage >= 0 or flags.number >= 0:
        selected = [_job_of_stage(plan, flags)]
    elif missing:
        more = f" ({len(missing) - 1} more files are missing.)" if len(missing) > 1 else ""
        raise UserError(f"Missing file: {missing[0]}.{more}")
    _run(plan, selected, workdir, flags.parallel)


def _plan(flags: argparse.Namespace) -> Plan:
    """Returns the plan of the sweep file, or without one that of the workdir."""
    if not flags.sweep:
        given = {"set": flags.set, "seeds": flags.seeds, "config": flags.overrides}
        for name in filter(given.get, given):
            raise UserError(f"--{name} changes the runs of a sweep file: give --sweep=FILE too.")
        return record.load_plan(flags.workdir)
    sweep = load_sweep(flags.sweep, flags.set)
    made = jobs.make_jobs(sweep, resolve, seeds=flags.seeds or 1, more=flags.overrides)
    from bert_jax.optim.make import check_names

    for job in made:  # what only optimizers know, before hours of work
        if job.kind == "train":
            try:
                check_names(parse(job.settings).optimizer)
            except UserError as error:
                raise UserError(f"Run {job.name}: {error}") from error
    words = [f"--sweep={flags.sweep}", *(x for word in flags.set for x in ("--set", word))]
    words += [f"--seeds={flags.seeds or 1}"]
    words += [f"--config.{name}={value}" for name, value in flags.overrides.items()]
    return Plan(sweep.title, sweep.note, made, sweep.tables, f"Made by `{shlex.join(words)}`.")


def resolve(
    file: str, values: Mapping[str, str], source_model: Mapping[str, Any] | None
) -> RunConfig:
    """Returns the configuration of a run, parsed and validated as the run will do it.

    Args:
      file: its --config.
      values: dotted field -> text.
      source_model: config.model of the run whose parameters it starts from, which does not exist
        yet; None: none.

    Raises:
      UserError: as `command_line.resolve`; or the source has another kind of model.
    """
    config = command_line.resolve(file, values)
    if source_model is None:
        return config
    by_file = written(experiments.load(file))
    return parse(unflatten(init_from.with_model(config.fields(), source_model, values, by_file)))


def _missing_files(selected: Sequence[Job]) -> list[str]:
    """Returns "FILE, of the run NAME" for each labelled file that does not exist."""
    missing = {}
    for job in selected:
        data = job.settings.get("data", {}) if job.kind == "train" else {}
        more = [item.partition("=")[2] for item in data.get("more_eval", ())]
        for path in filter(None, (data.get("train"), data.get("eval"), *more)):
            if not path.startswith("tfds:") and not os.path.isfile(path):
                missing.setdefault(path, f"{path}, of the run {job.name}")
    return list(missing.values())


def _print_plan(plan: Plan, selected: Sequence[Job], missing: Sequence[str], workdir: str) -> None:
    for line in missing:
        print(f"missing  {line}")
    stages = jobs.stages(plan.jobs)
    for number, stage in enumerate(stages):
        for job in stage:
            if job in selected:
                words = job.command(os.path.normpath(workdir))
                print(f"stage {number}  {shlex.join(['python', *words[1:]])}")
    print(f"{len(selected)} jobs in {len(stages)} stages")


def _job_of_stage(plan: Plan, flags: argparse.Namespace) -> Job:
    """Returns the job of a cluster's task; ends the process if it cannot start."""
    stages = jobs.stages(plan.jobs)
    if not 0 <= flags.stage < len(stages) or not 0 <= flags.number < len(stages[flags.stage]):
        raise UserError(
            f"--stage={flags.stage} --number={flags.number} is not a job: the sweep has stages with"
            f" {', '.join(str(len(stage)) for stage in stages)} jobs, both counted from 0."
        )
    job = stages[flags.stage][flags.number]
    for need in job.needs:
        if not record.is_finished(need, flags.workdir):
            print(f"{job.name}: skipped, since it needs {need}, which is not complete")
            sys.exit(1)
    return job


def _run(plan: Plan, selected: Sequence[Job], workdir: str, parallel: int) -> None:
    slots, by_name = make_slots(parallel), {job.name: job for job in plan.jobs}
    complete = sum(record.is_finished(job.name, workdir) for job in selected)
    print(f"{len(selected)} jobs, {complete} of them complete before", flush=True)
    outcome = schedule.run_jobs(selected, by_name, slots, workdir, lambda _: _write(plan, workdir))
    if outcome.signal_name:
        print(
            f"Stopped by {outcome.signal_name}. The same command resumes, or:"
            f" bert_jax sweep --workdir={shlex.quote(workdir)}"
        )
        sys.exit(128 + signal.Signals[outcome.signal_name])
    print()
    _print_report(plan, workdir)
    for line in outcome.describe_failures(workdir):
        print(line)
    if outcome.failed:
        sys.exit(1)


def _write(plan: Plan, workdir: str) -> report.Results:
    found = record.collect(plan, workdir)
    lines = "".join(json.dumps(item) + "\n" for item in found)
    with own_parts():  # jobs of a cluster may end at the same time
        write_text(os.path.join(workdir, record.RESULTS), lines)
        write_text(os.path.join(workdir, record.REPORT), report.markdown(plan, found))
    return found


def _print_report(plan: Plan, workdir: str) -> None:
    print(report.markdown(plan, _write(plan, workdir)), end="")
    for changes in record.left_out(plan, workdir):
        _logger.warning("Left out of the tables: %s", changes)
    with own_parts():
        print(page.write_page(workdir))
