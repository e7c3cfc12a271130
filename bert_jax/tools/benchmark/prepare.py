"""Measures the speed and the memory of data preparation, stage by stage.

    bert_jax benchmark prepare --config.data.source=text:FILE
    bert_jax benchmark prepare --config.data.source=text:FILE --tasks=1,2,4

With --tasks, the corpus is prepared by so many programs at the same time, which divide the work;
the data must be the same.
"""

import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.side_by_side import describe_machine, table

_STAGE = re.compile(r"^([a-z ]+): .* in ([\d.]+) s \(([\d.]+) MB/s\)$", re.MULTILINE)


def run(words: Sequence[str], tasks: Sequence[int]) -> None:
    """Prints for each number of tasks the time, the memory, and the stages of the first task.

    Args:
      words: flags of `bert_jax prepare`, without `--data_dir`.
      tasks: numbers of programs that divide the work.

    Raises:
      UserError: a program failed, or different numbers of programs made different data.
    """
    print(describe_machine())
    made = set()
    for number in tasks:
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(_measure([*words, f"--data_dir={folder}"], number)), flush=True)
            made.add(pathlib.Path(folder, "manifest.json").read_bytes())
    if len(made) > 1:
        raise UserError(f"--tasks={','.join(map(str, tasks))}: the manifests of the data differ.")


def _measure(flags: Sequence[str], number: int) -> list[str]:
    command = [sys.executable, "-m", "bert_jax", "prepare", *flags]
    start = time.perf_counter()
    programs = [
        subprocess.Popen([*command, f"--share={i}/{number}"], stdout=subprocess.PIPE, text=True)
        for i in range(number)
    ]
    output, *_ = (program.communicate()[0] for program in programs)
    if any(program.returncode for program in programs):
        raise UserError("bert_jax prepare failed.")
    seconds = time.perf_counter() - start
    # Of all processes that have ended so far, the largest.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    # A long stage reports its progress several times: the last report counts.
    stages = {name: (spent, speed) for name, spent, speed in _STAGE.findall(output)}
    head = f"\n--tasks={number}: {seconds:.1f} s, at most {peak:.0f} MiB in any process"
    return [head, *table(("s", "MB/s"), stages)]
