"""Jobs that are scripts instead of trainings."""

import dataclasses
import sys

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


def script(name: str, code: str = "", needs: tuple[str, ...] = (), **fields) -> Script:
    """Returns a job that runs code; it has no configuration, as preparations have none."""
    return Script(name, "prepare", "", {}, {}, needs, code=code, **fields)


def plan_of(*jobs: Job, **changes) -> Plan:
    """Returns a plan, by default without tables."""
    values = {"title": "A sweep", "note": "", "tables": (), "source": "Made by hand."} | changes
    return Plan(jobs=jobs, **values)
