"""The files of a sweep: its plan, and of each job what was run, how far it is, and that it is done.

sweep.json              the plan: jobs and tables, so that no other file is needed later
runs/NAME/              the workdir of a run, with these files in addition to the run's own:
  job.json              the settings that it was started with
  log.txt               its output, of all starts
  finished.json         written after its process ended well: the job is complete
  failed.json           why its last process failed
  lock                  locked while a process works in the folder
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.group import flatten
from bert_jax.config.store import parse
from bert_jax.files.atomic import read_json, read_json_lines, write_json
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.plan import Column, Table

PLAN, RESULTS, REPORT = "sweep.json", "results.jsonl", "results.md"
_STARTED, _FINISHED, _FAILED, _LOG = "job.json", "finished.json", "failed.json", "log.txt"
_TOTAL_STEPS = re.compile(rb"^step +\d+/(\d+) ", re.MULTILINE)
_PARAMETERS = re.compile(rb"^([\d,]+) parameters$", re.MULTILINE)
_STOPPED = re.compile(r"^Stopped by \w+ after step ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What sweep.json holds."""

    title: str
    note: str
    jobs: tuple[Job, ...]
    tables: tuple[Table, ...]
    source: str  # the sweep file and its settings, for the report

    def stages(self) -> list[list[Job]]:
        """Returns the jobs by stage; those of a stage depend on earlier stages only."""
        stages: list[list[Job]] = [[] for _ in range(1 + max(job.stage for job in self.jobs))]
        for job in self.jobs:
            stages[job.stage].append(job)
        return stages


def save_plan(plan: Plan, workdir: str) -> None:
    """Writes sweep.json."""
    values = dataclasses.asdict(plan)
    for table in values["tables"]:
        table["paper"] = [[*place, value] for place, value in table["paper"].items()]
    os.makedirs(workdir, exist_ok=True)
    write_json(os.path.join(workdir, PLAN), {"version": 1, **values}, sort_keys=False)


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
        return Plan(
            title=values["title"],
            note=values["note"],
            jobs=tuple(_job(item) for item in values["jobs"]),
            tables=tuple(_table(item) for item in values["tables"]),
            source=values["source"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is corrupt ({error}): give --sweep=FILE again.") from None


def _job(item: dict[str, Any]) -> Job:
    snapshot = tuple(item["snapshot"]) if item["snapshot"] else None
    return Job(**item | {"needs": tuple(item["needs"]), "snapshot": snapshot})


def _table(item: dict[str, Any]) -> Table:
    columns = tuple(Column(**column) for column in item["columns"])
    paper = {(system, task): value for system, task, value in item["paper"]}
    return Table(**item | {"columns": columns, "paper": paper})


# ---------------------------------------------------------------------------------------- of a job


def folder_of(job: str, workdir: str) -> pathlib.Path:
    """Returns the folder of a job."""
    return pathlib.Path(workdir, "runs", job)


def log_of(job: str, workdir: str) -> pathlib.Path:
    """Returns the path of a job's output."""
    return folder_of(job, workdir) / _LOG


def is_finished(job: str, workdir: str) -> bool:
    """Whether a job is complete."""
    return (folder_of(job, workdir) / _FINISHED).is_file()


def mark_started(job: Job, jobs: Mapping[str, Job], workdir: str) -> None:
    """Writes what a job is started with."""
    folder = folder_of(job.name, workdir)
    write_json(folder / _STARTED, {"settings": job.settings, "origin": origin(job, jobs)})
    (folder / _FAILED).unlink(missing_ok=True)


def mark_finished(job: Job, workdir: str, seconds: float) -> None:
    """Records that a job is complete; `seconds` is the time of its last process."""
    write_json(folder_of(job.name, workdir) / _FINISHED, {"seconds_of_last_start": seconds})


def mark_failed(job: str, workdir: str, reason: str) -> None:
    """Records that a job failed or was skipped, for jobs on other machines that wait for it."""
    folder = folder_of(job, workdir)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / _FAILED, {"reason": reason})


def seconds_since_failure(job: str, workdir: str) -> float | None:
    """Returns how long ago a job failed that was not started again; None if it did not."""
    path = folder_of(job, workdir) / _FAILED
    return time.time() - path.stat().st_mtime if path.is_file() else None


def origin(job: Job, jobs: Mapping[str, Job]) -> dict[str, str]:
    """Returns a digest of the settings of each job that this one builds on."""
    return {name: _digest(jobs[name], jobs) for name in job.needs}


def _digest(job: Job, jobs: Mapping[str, Job]) -> str:
    free = parse(job.settings).free_fields() if job.kind == "train" else set()
    settings = {name: value for name, value in flatten(job.settings) if name not in free}
    text = json.dumps([settings, origin(job, jobs)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_unchanged(job: Job, jobs: Mapping[str, Job], workdir: str) -> None:
    """Refuses a job whose folder has results of other settings.

    Raises:
      UserError: listing what differs, and how to run it anew.
    """
    path = folder_of(job.name, workdir) / _STARTED
    if not path.is_file():
        return
    started = read_json(path)
    changed = []
    if job.kind == "train":  # the name of prepared data is a digest of its settings
        old, new = (parse(values) for values in (started["settings"], _json(job)))
        changed = store.differences(old, new)
    now = origin(job, jobs)
    changed += [
        f"the settings of {name}, which it builds on"
        for name in sorted(now.keys() | started["origin"].keys())
        if now.get(name) != started["origin"].get(name)
    ]
    if changed:
        raise UserError(
            f"{folder_of(job.name, workdir)} was started with other settings: {'; '.join(changed)}."
            " Choose another --workdir, or delete this folder to run it anew."
        )


def _json(job: Job) -> dict[str, Any]:
    return json.loads(json.dumps(job.settings))


# ----------------------------------------------------------------------------------- of its output


def was_stopped(output: str) -> bool:
    """Whether the output of a process says that training stopped before its end."""
    return bool(_STOPPED.search(output))


def last_lines(job: str, workdir: str, count: int) -> list[str]:
    """Returns the last lines of a job's output that are not empty."""
    path = log_of(job, workdir)
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return [line for line in text.splitlines() if line.strip()][-count:]


def total_steps(job: str, workdir: str) -> int | None:
    """Returns the length of a run in steps; None if it has not reported yet."""
    return _last_number(job, workdir, _TOTAL_STEPS)


def num_parameters(job: str, workdir: str) -> int | None:
    """Returns the number of parameters of a run; None if it has not begun to train."""
    return _last_number(job, workdir, _PARAMETERS)


def _last_number(job: str, workdir: str, pattern: re.Pattern[bytes]) -> int | None:
    path = log_of(job, workdir)
    found: Sequence[bytes] = pattern.findall(path.read_bytes()) if path.is_file() else ()
    return int(found[-1].replace(b",", b"")) if found else None


def read_rows(job: str, workdir: str) -> list[dict[str, Any]]:
    """Returns the lines of a run's metrics.jsonl; an incomplete last line is left out."""
    return read_json_lines(folder_of(job, workdir) / "metrics.jsonl")
