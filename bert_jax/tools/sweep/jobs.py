"""From a sweep to jobs: one process each, with its command line and what it waits for.

A run with several seeds becomes a job for each. Runs on a corpus with the same data settings share
one folder of prepared data, which a job of its own prepares.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.config.phases import without_given
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.plan import REFERENCE, Run, Sweep

# (config file, dotted field -> text, model of the run whose parameters it takes or None) -> the
# resolved configuration.
Resolve = Callable[[str, Mapping[str, str], Mapping[str, Any] | None], RunConfig]
WORKDIR = "{workdir}"


@dataclass(frozen=True)
class Job:
    """One process."""

    name: str  # of the folder runs/NAME
    kind: str  # `train` or `prepare`
    config: str  # configuration file
    overrides: dict[str, str]  # dotted field -> text; `{workdir}`: the sweep's folder
    settings: dict[str, Any]  # the resolved configuration
    needs: Sequence[str] = ()  # names of jobs that must be complete
    snapshot: tuple[str, int] | None = None  # (job, step) that it starts from
    system: str = ""  # as `task`, of `plan.Run`
    task: str = ""
    seed: int | None = None  # None for data

    def command(self, workdir: str) -> list[str]:
        """Returns the words of its command line; relative paths are as for the sweep."""
        if self.kind == "prepare":
            words = ["bert_jax", "prepare", f"--config={self.config}"]
            words.append(f"--data_dir={self.overrides['data.dir']}")
        else:
            words = ["bert_jax.main", f"--config={self.config}"]
            words.append(f"--workdir={WORKDIR}/runs/{self.name}")
        words += [f"--config.{name}={text}" for name, text in self.overrides.items()]
        return [sys.executable, "-m", *(word.replace(WORKDIR, workdir) for word in words)]


def make_jobs(
    sweep: Sweep, resolve: Resolve, *, seeds: int = 1, more: Mapping[str, str] | None = None
) -> tuple[Job, ...]:
    """Returns the jobs of a sweep, each after those that it needs.

    Args:
      sweep: the sweep with its runs.
      resolve: parses and validates a configuration with the program's own parser.
      seeds: number of seeds of the runs that leave it open.
      more: overrides for all runs, which replace their own.

    Raises:
      UserError: for a configuration that cannot be used, with the name of its run.
    """
    expansion = _Expansion(resolve, seeds, more or {})
    for run in sweep.runs:
        try:
            expansion.add(run)
        except UserError as error:
            raise UserError(f"Run {run.name}: {error}") from error
    return tuple(expansion.jobs.values())


class _Expansion:
    """The jobs of the runs so far."""

    def __init__(self, resolve: Resolve, seeds: int, more: Mapping[str, str]):
        self._resolve, self._seeds, self._more = resolve, seeds, more
        self.jobs: dict[str, Job] = {}
        self._of_run: dict[str, list[str]] = {}
        self._preparations: dict[str, str] = {}  # job -> the job that prepares its data

    def add(self, run: Run) -> None:
        """Adds a job for each seed of a run, and the preparation of its data if it is new."""
        count = run.seeds or self._seeds
        several = count > 1 or run.seeds == 0
        names = []
        for index in range(count):
            overrides, needs = self._overrides(run, index)
            # Parameters that the sweep will make cannot be read yet.
            future = WORKDIR in overrides.get("init_from", "")
            now = {k: v for k, v in overrides.items() if k != "init_from" or not future}
            source = self.jobs[self._of_run[run.after][0]] if run.after else None
            config = self._resolve(run.config, now, source and source.settings["model"])
            if several:
                config = config.replace({"seed": config.seed + index})
                overrides["seed"] = str(config.seed)
            if future:
                config = config.replace({"init_from": overrides["init_from"]})
            name = f"{run.name}-seed{config.seed}" if several else run.name
            if name in self.jobs:
                raise UserError(f"two jobs have the name {name!r}: rename one of the runs.")
            if isinstance(config, PretrainingConfig):
                preparation = self._prepare(run, config, overrides, needs)
                self._preparations[name] = preparation.name
                needs.append(preparation.name)
                overrides["data.dir"] = preparation.overrides["data.dir"]
                config = config.replace({"data.dir": overrides["data.dir"]})
            self.jobs[name] = Job(
                name=name,
                kind="train",
                config=run.config,
                overrides=overrides,
                settings=config.to_dict(),
                needs=tuple(dict.fromkeys(needs)),
                snapshot=(self._job_of(run.after, index), run.at_step) if run.at_step else None,
                system=run.system,
                task=run.task,
                seed=config.seed,
            )
            names.append(name)
        self._of_run[run.name] = names

    def _overrides(self, run: Run, index: int) -> tuple[dict[str, str], list[str]]:
        needs: list[str] = []

        def replace(match: re.Match[str]) -> str:
            job = self._job_of(match[2], index)
            if match[1] == "run":
                needs.append(job)
                return f"{WORKDIR}/runs/{job}"
            if job not in self._preparations:
                raise UserError(
                    f"{match[0]} is not prepared data: {match[2]} does not train on a corpus."
                )
            needs.append(self._preparations[job])
            return self.jobs[job].overrides["data.dir"]

        texts = {name: str(value) for name, value in run.overrides.items()}
        texts = without_given(texts, self._more) | {**self._more}
        texts = {name: REFERENCE.sub(replace, text) for name, text in texts.items()}
        if run.after:
            job = self._job_of(run.after, index)
            needs.append(job)
            place = f"snapshots/{job}-step{run.at_step}" if run.at_step else f"runs/{job}"
            texts["init_from"] = f"{WORKDIR}/{place}"
        return texts, needs

    def _job_of(self, run: str, index: int) -> str:
        """Returns the job of a run that seed number `index` of another run refers to."""
        names = self._of_run[run]
        if len(names) == 1:
            return names[0]
        if index >= len(names):
            raise UserError(
                f"seed number {index + 1} needs a seed of {run}, which has {len(names)}."
            )
        return names[index]

    def _prepare(
        self, run: Run, config: PretrainingConfig, overrides: Mapping[str, str], needs: list[str]
    ) -> Job:
        """Returns the job that prepares the data; it is added if it is new."""
        values = config.data.shard_settings()
        if not config.data.vocab or config.init_from:
            values["init_from"] = config.init_from  # brings its vocabulary
        if config.data.dir:
            values["dir"] = config.data.dir
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
        folder = config.data.dir or f"{WORKDIR}/data/{digest}"
        return self.jobs.setdefault(
            f"data-{digest}",
            Job(
                name=f"data-{digest}",
                kind="prepare",
                config=run.config,
                overrides={**overrides, "data.dir": folder},
                settings=values,
                needs=tuple(dict.fromkeys(needs)),
            ),
        )


def stages(jobs: Sequence[Job]) -> list[list[Job]]:
    """Returns the jobs by stage; those of a stage depend on earlier stages only."""
    number: dict[str, int] = {}
    for job in jobs:
        number[job.name] = max((number[name] + 1 for name in job.needs), default=0)
    return [[job for job in jobs if number[job.name] == i] for i in range(1 + max(number.values()))]


def select(jobs: Sequence[Job], pattern: str) -> tuple[Job, ...]:
    """Returns the jobs whose names match a regular expression, and all that they need.

    Raises:
      UserError: it is not a valid regular expression, or no name matches.
    """
    try:
        wanted = {job.name for job in jobs if re.search(pattern, job.name)}
    except re.error as error:
        raise UserError(f"--only={pattern} is not a regular expression: {error}.") from None
    if not wanted:
        names = ", ".join(job.name for job in jobs)
        raise UserError(f"--only={pattern} matches no run. Runs: {names}.")
    for job in reversed(jobs):
        if job.name in wanted:
            wanted.update(job.needs)
    return tuple(job for job in jobs if job.name in wanted)
