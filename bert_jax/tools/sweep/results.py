"""The results of the complete runs of a sweep, one object for each: the lines of results.jsonl."""

import math
from typing import Any

from bert_jax.files.atomic import read_json, read_json_lines
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.record import Plan


def collect(plan: Plan, workdir: str) -> list[dict[str, Any]]:
    """Returns the results of all complete runs, in the order of the plan."""
    complete = (job for job in plan.trainings if record.is_finished(job.name, workdir))
    return [result(job, workdir) for job in complete]


def result(job: Job, workdir: str) -> dict[str, Any]:
    """Returns the results of a complete run.

    `metrics` are those of its results.json, or of its last evaluation during training where there
    is none. `seconds` are those of the steps, with the compilation at the start of a process and
    without evaluations; `tokens` are positions, padding included. Work that was lost when a process
    was killed, and done again, is counted once.
    """
    folder = record.folder_of(job.name, workdir)
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
    path = record.folder_of(job.name, workdir) / "results.json"
    if path.is_file():
        values = dict(read_json(path)["eval"])
    else:
        values = next((row for row in reversed(rows) if row["split"] == "validation"), {})
        values = {name: x for name, x in values.items() if name not in ("step", "split", "speed")}
    if isinstance(loss := values.get("masked_lm_loss"), float):
        values.setdefault("masked_lm_perplexity", math.exp(min(loss, 700.0)))
    return values
