"""From a sweep to jobs: one process each, with its command line and what it waits for.

A run with several seeds becomes a job for each. Runs on a corpus with the same data settings share
one folder of prepared data, which a job of its own prepares.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.plan import Run, Sweep

# (config file, dotted field -> text, configuration of the run whose parameters it takes or None) ->
# the resolved configuration.
Resolve = Callable[[str, Mapping[str, str], RunConfig | None], RunConfig]
WORKDIR = "{workdir}"
_REFERENCE = re.compile(r"\{(run|data):([^}]*)\}")


@dataclass(frozen=True)
class Job:
    """One process.

    Attributes:
      name: of the folder runs/NAME.
      kind: `train` or `prepare`.
      config: configuration file.
      overrides: dotted field -> text; `{workdir}` stands for the folder of the sweep.
      settings: the resolved configuration, as dict.
      needs: names of jobs that must be complete.
      stage: 0 for a job without needs, otherwise one more than the largest of its needs.
      snapshot: (job, step): the checkpoint that it starts from, if not the chosen one.
      system, task: as of `plan.Run`.
      seed: of the run; None for data.
    """

    name: str
    kind: str
    config: str
    overrides: dict[str, str]
    settings: dict[str, Any]
    needs: tuple[str, ...] = ()
    stage: int = 0
    snapshot: tuple[str, int] | None = None
    system: str = ""
    task: str = ""
    seed: int | None = None

    def command(self, workdir: str) -> list[str]:
        """Returns the words of its command line; relative paths are those of the sweep's."""
        if self.kind == "prepare":
            words = ["bert_jax", "prepare", f"--config={self.config}"]
            words.append(f"--data_dir={self.overrides['data.dir']}")
        else:
            words = [
                "bert_jax.main",
                f"--config={self.config}",
                f"--workdir={WORKDIR}/runs/{self.name}",
            ]
        words += [f"--config.{name}={text}" for name, text in self.overrides.items()]
        return [sys.executable, "-m", *(word.replace(WORKDIR, workdir) for word in words)]


@dataclass
class _Expansion:
    """What is known about the runs so far."""

    seeds: int
    more: Mapping[str, str]
    resolve: Resolve
    jobs: dict[str, Job] = field(default_factory=dict)
    of_run: dict[str, list[str]] = field(default_factory=dict)
    data: dict[str, tuple[str, str]] = field(default_factory=dict)  # job -> folder, its preparation
    configs: dict[str, RunConfig] = field(default_factory=dict)  # of runs


def make_jobs(
    sweep: Sweep, resolve: Resolve, *, seeds: int = 1, more: Mapping[str, str] | None = None
) -> tuple[Job, ...]:
    """Returns the jobs of a sweep, each after those that it needs.

    Args:
      sweep: with its runs.
      resolve: parses and validates a configuration with the program's own parser.
      seeds: number of seeds of the runs that leave it open.
      more: overrides of all runs, which replace their own.

    Raises:
      UserError: for a configuration that cannot be used, with the name of its run.
    """
    expansion = _Expansion(seeds, more or {}, resolve)
    for run in sweep.runs:
        try:
            _expand(expansion, run)
        except UserError as error:
            raise UserError(f"Run {run.name}: {error}") from error
    return tuple(expansion.jobs.values())


def _expand(known: _Expansion, run: Run) -> None:
    count = run.seeds or known.seeds
    several = count > 1 or run.seeds == 0
    names = []
    for index in range(count):
        overrides, needed = _overrides(known, run, index)
        source = known.configs.get(run.after)
        config = known.resolve(run.config, _without_future(overrides), source)
        if several:
            config = config.replace({"seed": config.seed + index})
            overrides["seed"] = str(config.seed)
        if "init_from" in overrides:
            config = config.replace({"init_from": overrides["init_from"]})
        name = f"{run.name}-seed{config.seed}" if several else run.name
        if name in known.jobs:
            raise UserError(f"two jobs have the name {name!r}: rename one of the runs.")
        if isinstance(config, PretrainingConfig):
            job, folder = _share_data(known, run, name, config, overrides, needed)
            needed.append(job)
            config = config.replace({"data.dir": folder})
        known.jobs[name] = Job(
            name=name,
            kind="train",
            config=run.config,
            overrides=overrides,
            settings=config.to_dict(),
            needs=tuple(dict.fromkeys(needed)),
            stage=_stage(known, needed),
            snapshot=(_job_of(known, run.after, index), run.at_step) if run.at_step else None,
            system=run.system,
            task=run.task,
            seed=config.seed,
        )
        names.append(name)
        known.configs.setdefault(run.name, config)
    known.of_run[run.name] = names


def _overrides(known: _Expansion, run: Run, index: int) -> tuple[dict[str, str], list[str]]:
    """Returns the overrides of one seed as text, and the jobs that they name."""
    needed: list[str] = []

    def replace(match: re.Match[str]) -> str:
        job = _job_of(known, match[2], index)
        if match[1] == "run":
            needed.append(job)
            return f"{WORKDIR}/runs/{job}"
        if job not in known.data:
            raise UserError(f"{match[0]} is no data: {match[2]} does not train on a corpus.")
        folder, preparation = known.data[job]
        needed.append(preparation)
        return folder

    texts = {name: str(value) for name, value in run.overrides.items()} | dict(known.more)
    texts = {name: _REFERENCE.sub(replace, text) for name, text in texts.items()}
    if run.after:
        job = _job_of(known, run.after, index)
        needed.append(job)
        place = f"snapshots/{job}-step{run.at_step}" if run.at_step else f"runs/{job}"
        texts["init_from"] = f"{WORKDIR}/{place}"
    return texts, needed


def _job_of(known: _Expansion, run: str, index: int) -> str:
    """Returns the job of a run that seed number `index` of another run refers to."""
    names = known.of_run[run]
    if len(names) == 1:
        return names[0]
    if index >= len(names):
        raise UserError(f"seed number {index + 1} needs a seed of {run}, which has {len(names)}.")
    return names[index]


def _share_data(
    known: _Expansion,
    run: Run,
    name: str,
    config: PretrainingConfig,
    overrides: dict[str, str],
    needed: list[str],
) -> tuple[str, str]:
    """Adds the job that prepares the data if it is new; returns its name and the folder."""
    values = config.data.shard_settings()
    if not config.data.vocab or config.init_from:
        values["init_from"] = config.init_from  # brings its vocabulary
    if config.data.dir:
        values["dir"] = config.data.dir
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    job, folder = f"data-{digest}", config.data.dir or f"{WORKDIR}/data/{digest}"
    known.data[name] = folder, job
    overrides["data.dir"] = folder
    if job not in known.jobs:
        known.jobs[job] = Job(
            name=job,
            kind="prepare",
            config=run.config,
            overrides=dict(overrides),
            settings=values,
            needs=tuple(dict.fromkeys(needed)),
            stage=_stage(known, needed),
        )
    return job, folder


def _stage(known: _Expansion, needed: list[str]) -> int:
    return max((known.jobs[name].stage + 1 for name in needed), default=0)


def _without_future(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the overrides without parameters that the sweep will make, and cannot read yet."""
    source = overrides.get("init_from", "")
    return {k: v for k, v in overrides.items() if k != "init_from" or WORKDIR not in source}


def select(jobs: tuple[Job, ...], pattern: str) -> tuple[Job, ...]:
    """Returns the jobs whose names match a regular expression, and all that they need.

    Raises:
      UserError: it is no regular expression, or no name matches.
    """
    try:
        wanted = {job.name for job in jobs if re.search(pattern, job.name)}
    except re.error as error:
        raise UserError(f"--only={pattern} is no regular expression: {error}.") from None
    if not wanted:
        names = ", ".join(job.name for job in jobs)
        raise UserError(f"--only={pattern} matches no run. Runs: {names}.")
    for job in reversed(jobs):
        if job.name in wanted:
            wanted.update(job.needs)
    return tuple(job for job in jobs if job.name in wanted)


def shown_command(job: Job, workdir: str) -> str:
    """Returns the command line for display, with `python` as the interpreter."""
    return shlex.join(["python", *job.command(os.path.normpath(workdir))[1:]])
