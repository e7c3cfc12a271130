"""Sweeps of small runs, and jobs that are scripts instead of trainings."""

import dataclasses
import pathlib
import sys

import pytest

from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.record import Plan


@dataclasses.dataclass(frozen=True)
class Script(Job):
    """A job whose process runs Python code in its folder."""

    code: str = ""

    def command(self, workdir: str) -> list[str]:
        folder = record.folder_of(self.name, workdir)
        return [sys.executable, "-c", f"import os; os.chdir({str(folder)!r})\n{self.code}"]


def script(name: str, code: str = "", needs: tuple[str, ...] = (), stage: int = 0) -> Script:
    """Returns a job that runs code; it has no configuration, as preparations have none."""
    return Script(name, "prepare", "", {}, {}, needs, stage, code=code)


def plan_of(*jobs: Job, **changes) -> Plan:
    """Returns a plan without tables."""
    return Plan(
        **{"title": "A sweep", "note": "", "tables": (), "source": "", **changes, "jobs": jobs}
    )


@pytest.fixture
def write_sweep(tmp_path):
    """Returns a function (body of the file) -> its path."""

    def write(body: str) -> str:
        path = pathlib.Path(tmp_path, "mine.py")
        path.write_text(
            f"from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table\n\n{body}\n"
        )
        return str(path)

    return write
