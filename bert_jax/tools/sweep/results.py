"""The results of the complete runs of a sweep: results.jsonl, one object a line."""

import json
import math
import os
from collections.abc import Iterable
from typing import Any

from bert_jax.files.atomic import read_json, write_text
from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.record import Plan


def collect(plan: Plan, workdir: str) -> list[dict[str, Any]]:
    """Returns the results of all complete runs, in the order of the plan."""
    runs = (job for job in plan.jobs if job.kind == "train")
    return [result(job, workdir) for job in runs if record.is_finished(job.name, workdir)]


def result(job: Job, workdir: str) -> dict[str, Any]:
    """Returns the results of a complete run.

    `metrics` are those of its results.json, or of its last evaluation during training where there
    is none. `seconds` are those of the updates, with the compilation at the start of a process and
    without evaluations; `tokens` are positions, padding included.
    """
    rows = record.read_rows(job.name, workdir)
    seconds, tokens = training_cost(rows)
    return {
        "name": job.name,
        "system": job.system,
        "task": job.task,
        "seed": job.seed,
        "metrics": _metrics(job, workdir, rows),
        "steps": max((row["step"] for row in rows if row["split"] == "train"), default=None),
        "parameters": record.num_parameters(job.name, workdir),
        "seconds": round(seconds, 2),
        "tokens": round(tokens),
    }


def training_cost(rows: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Returns the seconds and the tokens of a training run, from the lines of its metrics.jsonl.

    Work that was lost when a process was killed, and done again, is counted once.
    """
    speed: dict[str, Any] = {}
    for row in rows:
        speed = row.get("speed") or speed
    return speed.get("seconds", 0.0), speed.get("tokens", 0)


def _metrics(job: Job, workdir: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    path = record.folder_of(job.name, workdir) / "results.json"
    if path.is_file():
        values = dict(read_json(path)["eval"])
    else:
        evaluations = [row for row in rows if row["split"] == "validation"]
        values = evaluations[-1] if evaluations else {}
        values = {name: x for name, x in values.items() if name not in ("step", "split", "speed")}
    if isinstance(loss := values.get("masked_lm_loss"), float):
        values.setdefault("masked_lm_perplexity", math.exp(min(loss, 700.0)))
    return values


def write(results: list[dict[str, Any]], workdir: str) -> None:
    """Writes results.jsonl."""
    text = "".join(json.dumps(item) + "\n" for item in results)
    write_text(os.path.join(workdir, record.RESULTS), text)
