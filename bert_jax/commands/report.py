"""Writes the report of a run, of several runs or of a sweep: one HTML file that opens offline.

    python -m bert_jax report --workdir=DIR
    python -m bert_jax report --workdir=DIR --workdir=DIR2 --output=comparison.html

The file needs no network and no other file; docs/report.md describes what is in it. `train` and
`sweep` write it too, as report.html in the workdir.
"""

import os
from collections.abc import Sequence

from bert_jax.commands.flags.command_line import Parser
from bert_jax.files.atomic import write_text
from bert_jax.pages.report import NAME, report
from bert_jax.sweep import record
from bert_jax.sweep.page import sweep_page


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax report", __doc__)
    parser.repeated("workdir", "Folder of a run or a sweep; several are compared.", "DIR")
    parser.flag("output", "", f"The file; without it {NAME} in the only workdir.")
    flags = parser.parse(argv)
    path = write(flags.workdir, flags.output)
    print(f"wrote {path}, {os.path.getsize(path):,} bytes")


def write(workdirs: Sequence[str], output: str) -> str:
    """Writes the report of these folders; returns its path.

    Raises:
      ValueError: there is no folder, one holds no run, or several have no output.
    """
    if not workdirs:
        raise ValueError("--workdir is missing: the folder of a run or a sweep.")
    if len(workdirs) > 1 and not output:
        raise ValueError("--output is missing: the file to write for several workdirs.")
    sweeps = [path for path in workdirs if os.path.isfile(os.path.join(path, record.PLAN))]
    if sweeps and len(workdirs) > 1:
        raise ValueError(f"{sweeps[0]} holds a sweep: a sweep has a report of its own.")
    page = sweep_page(sweeps[0]) if sweeps else report(workdirs)
    path = output or os.path.join(workdirs[0], NAME)
    write_text(path, page)
    return path
