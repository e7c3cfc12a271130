"""The files of a sweep: its plan, and for each job what was run, its progress, and that it is done.

sweep.json              the plan: jobs and tables, so that no other file is needed later
runs/NAME/              the workdir of a run, with these files in addition to the run's own:
  job.json              the settings that it was started with
  log.txt               its output, of all starts
  finished.json         written after its process succeeded: the job is complete
  lock                  locked while a process works in the folder
snapshots/NAME-stepK/   a workdir with one checkpoint of a run, which other runs start from
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.group import flatten
from bert_jax.config.store import parse
from bert_jax.files.atomic import read_json, read_json_lines, whole_folder, write_json
from bert_jax.files.errors import UserError
from bert_jax.scores.language_model import perplexity
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.plan import Column, Table
from bert_jax.training.seals import checksum_file

PLAN, RESULTS, REPORT = store.SWEEP, "results.jsonl", "results.md"
_STARTED, _FINISHED = "job.json", "finished.json"
# Fields that a resumed run may change, and on which its results depend.
_OF_RESULTS = ("eval.max_batches", "eval.part", "checkpoint.best_metric", "checkpoint.use")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What sweep.json holds."""

    title: str
    note: str
    jobs: Sequence[Job]
    tables: Sequence[Table]
    source: str  # the sweep file and its settings, for the report

    @property
    def trainings(self) -> list[Job]:
        return [job for job in self.jobs if job.kind == "train"]


def save_plan(plan: Plan, workdir: str) -> None:
    os.makedirs(workdir, exist_ok=True)
    write_json(os.path.join(workdir, PLAN), dataclasses.asdict(plan), sort_keys=False)


def load_plan(workdir: str) -> Plan:
    """Returns the plan of a folder.

    Raises:
      UserError: there is none.
    """
    path = pathlib.Path(workdir, PLAN)
    if not path.is_file():
        raise UserError(f"{workdir} holds no sweep: start one with --sweep=FILE.")
    try:
        values = read_json(path)
        jobs = [Job(**item) for item in values.pop("jobs")]
        tables = [
            Table(**item | {"columns": [Column(**column) for column in item["columns"]]})
            for item in values.pop("tables")
        ]
        return Plan(jobs=jobs, tables=tables, **values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is corrupt ({error}): give --sweep=FILE again.") from None


# ---------------------------------------------------------------------------------------- of a job


def folder_of(job: str, workdir: str) -> pathlib.Path:
    return pathlib.Path(workdir, "runs", job)


def log_of(job: str, workdir: str) -> pathlib.Path:
    return folder_of(job, workdir) / "log.txt"


def is_finished(job: str, workdir: str) -> bool:
    return (folder_of(job, workdir) / _FINISHED).is_file()


def mark_started(job: Job, jobs: Mapping[str, Job], workdir: str) -> None:
    values = {"settings": job.settings, "origin": _origin(job, jobs)}
    write_json(folder_of(job.name, workdir) / _STARTED, values)


def mark_finished(job: str, workdir: str, seconds: float) -> None:
    """Records that a job is complete; `seconds` is the time of its last process."""
    write_json(folder_of(job, workdir) / _FINISHED, {"seconds_of_last_start": seconds})


def _origin(job: Job, jobs: Mapping[str, Job]) -> dict[str, str]:
    return {name: _digest(jobs[name], jobs) for name in job.needs}


def _digest(job: Job, jobs: Mapping[str, Job]) -> str:
    settings = dict(flatten(job.settings))
    if job.kind == "train":
        free = _free(json.dumps(job.settings))
        settings = {name: value for name, value in settings.items() if name not in free}
    text = json.dumps([settings, _origin(job, jobs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Settings are read once, as JSON: after each run, `collect` compares those of all.
@functools.cache
def _free(settings: str) -> frozenset[str]:
    return frozenset(parse(json.loads(settings)).marked("free"))


@functools.cache
def _differences(started: str, settings: str, finished: bool) -> tuple[str, ...]:
    if started == settings:
        return ()
    old, new = (parse(json.loads(text)) for text in (started, settings))
    # Runs may be resumed with others of these, but results of both cannot be compared.
    results = (
        f"{name}: {old.get(name, None)!r} there, {new.get(name, None)!r} requested"
        for name in (_OF_RESULTS if finished else ())
        if old.get(name, None) != new.get(name, None)
    )
    return (*store.differences(old, new), *results)


def changes(job: Job, jobs: Mapping[str, Job], workdir: str) -> str:
    """Returns what differs from the settings of the results in a job's folder, and how to run it
    anew; "": nothing does."""
    path = folder_of(job.name, workdir) / _STARTED
    if not path.is_file():
        return ""
    started, now, changed = read_json(path), _origin(job, jobs), []
    if job.kind == "train":  # the name of prepared data is a digest of its settings
        texts = map(json.dumps, (started["settings"], job.settings))
        changed += _differences(*texts, is_finished(job.name, workdir))
    changed += [
        f"the settings of {name}, which it builds on"
        for name in sorted(now.keys() | started["origin"].keys())
        if now.get(name) != started["origin"].get(name)
    ]
    if not changed:
        return ""
    return (
        f"{folder_of(job.name, workdir)} was started with other settings: {'; '.join(changed)}."
        " Choose another --workdir, or delete this folder to run it anew."
    )


def check_unchanged(job: Job, jobs: Mapping[str, Job], workdir: str) -> None:
    """Raises UserError for a job whose folder has results of other settings."""
    if found := changes(job, jobs, workdir):
        raise UserError(found)


def make_snapshot(job: str, step: int, workdir: str) -> pathlib.Path:
    """Returns a workdir with one checkpoint of a run, whose files it shares by hard links.

    Raises:
      UserError: the run did not keep that checkpoint.
    """
    target = pathlib.Path(workdir, "snapshots", f"{job}-step{step}")
    run = folder_of(job, workdir)
    checkpoint, copied = (folder / "checkpoints" / str(step) for folder in (run, target))
    if target.is_dir():
        ours, theirs = map(checksum_file, (checkpoint, copied))
        if not ours.is_file() or ours.samefile(theirs):
            return target
        shutil.rmtree(target)  # of a run that was deleted and done again
    if not checksum_file(checkpoint).is_file():
        names = (path.name for path in checkpoint.parent.glob("*") if path.name.isdecimal())
        found = ", ".join(sorted(names, key=int)) or "none"
        raise UserError(
            f"{run} has no checkpoint of step {step} (it has {found}): its config.checkpoint.every"
            " must divide the step, and config.checkpoint.keep be large enough."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(target) as temporary:
        for path in (run / "config.json", *run.glob("vocab.*"), *run.glob("labels.json")):
            shutil.copy(path, temporary)
        copied = pathlib.Path(temporary, "checkpoints", str(step))
        shutil.copytree(checkpoint, copied, copy_function=os.link)
        os.link(checksum_file(checkpoint), checksum_file(copied))
    return target


# --------------------------------------------------------------------------------------- results


def collect(plan: Plan, workdir: str) -> list[dict[str, Any]]:
    """Returns the results of all complete runs with the plan's settings, in its order."""
    by_name = {job.name: job for job in plan.jobs}
    complete = (job for job in plan.trainings if is_finished(job.name, workdir))
    return [result(job, workdir) for job in complete if not changes(job, by_name, workdir)]


def left_out(plan: Plan, workdir: str) -> list[str]:
    """Returns the `changes` of the complete runs that `collect` leaves out."""
    by_name = {job.name: job for job in plan.jobs}
    complete = (job for job in plan.trainings if is_finished(job.name, workdir))
    return [found for job in complete if (found := changes(job, by_name, workdir))]


def result(job: Job, workdir: str) -> dict[str, Any]:
    """Returns the results of a complete run.

    `metrics` are those of its results.json, or of its last evaluation during training where there
    is none. `seconds` are those of the steps, with the compilation at the start of a process and
    without evaluations; `tokens` are positions, padding included. Work that was lost when a process
    was killed, and done again, is counted once.
    """
    folder = folder_of(job.name, workdir)
    rows = read_json_lines(folder / "metrics.jsonl")
    shapes = folder / "parameters.json"
    speed = next((row["speed"] for row in reversed(rows) if row.get("speed")), {})
    return {
        "name": job.name,
        "system": job.system,
        "task": job.task,
        "seed": job.seed,
        "metrics": _metrics(job, workdir, rows),
        "steps": max((row["step"] for row in rows if row["split"] == "train"), default=None),
        "parameters": sum(row[-1] for row in read_json(shapes)) if shapes.is_file() else None,
        "seconds": round(speed.get("seconds", 0.0), 2),
        "tokens": round(speed.get("tokens", 0)),
    }


def _metrics(job: Job, workdir: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    path = folder_of(job.name, workdir) / "results.json"
    if path.is_file():
        values = dict(read_json(path)["eval"])
    else:
        values = next((row for row in reversed(rows) if row["split"] == "validation"), {})
        values = {name: x for name, x in values.items() if name not in ("step", "split", "speed")}
    if isinstance(loss := values.get("masked_lm_loss"), float):
        values.setdefault("masked_lm_perplexity", perplexity(loss))
    return values
