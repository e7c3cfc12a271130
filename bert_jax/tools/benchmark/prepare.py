"""Measures the speed and the memory of data preparation, stage by stage.

    python -m bert_jax benchmark prepare [--text=FILE] [--times=1,10] [--vocab=PATH] [--mode=MODE]
    python -m bert_jax benchmark prepare [--text=FILE] [--times=1,10] --tasks=1,2,4

The text is prepared as it is, and again repeated several times (with small changes, so that copies
do not count as duplicates). Without --text it is the installed documentation. With --tasks, it is
prepared by so many programs at the same time, which divide the work and have one process each.
"""

import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.machine import describe_machine

_STAGE = re.compile(r"^([a-z ]+): .* in ([\d.]+) s \(([\d.]+) MB/s\)$")


def run(
    text: str,
    times: Sequence[int],
    vocab: str,
    mode: str,
    processes: int,
    tasks: Sequence[int] = (),
) -> None:
    """Prints a table for each size of the text, or, with `tasks`, a line for each and each number.

    Args:
      text: file of paragraphs, with blank lines between documents; empty: installed documentation.
      times: number of copies of the text, for each table.
      vocab, mode, processes: `config.data.vocab`, `mode` and `num_processes`.
      tasks: numbers of programs that divide the work.

    Raises:
      UserError: different numbers of programs made different data.
    """
    print(describe_machine())
    fields = {"vocab": vocab, "mode": mode, "num_processes": processes}
    with tempfile.TemporaryDirectory() as folder:
        text = text or write_installed_docs(f"{folder}/docs.txt")
        for count in times:
            repeated = text if count == 1 else write_times(text, count, f"{folder}/text{count}.txt")
            if not tasks:
                measure(repeated, f"{folder}/data{count}", fields)
            made = set()
            for number in tasks:
                data_dir = f"{folder}/data{count}-{number}"
                measure_tasks(repeated, data_dir, fields, number)
                made.add(pathlib.Path(data_dir, "manifest.json").read_bytes())
                shutil.rmtree(data_dir)
            if len(made) > 1:
                raise UserError(f"--tasks={tasks}: the manifests of the data differ.")


def measure(text: str, data_dir: str, fields: Mapping[str, str | int]) -> None:
    """Prepares one text in a new process and prints a line for each stage."""
    started = time.perf_counter()
    command = prepare_command(text, data_dir, fields)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - started
    print(f"\n{_megabytes(text)} MB of text: {seconds:.1f} s, {_peak()}")
    # A long stage reports its progress several times: the last report counts.
    stages = {match[1]: match for match in map(_STAGE.match, output.splitlines()) if match}
    for name, match in stages.items():
        print(f"  {name:<12} {float(match[2]):8.1f} s {float(match[3]):8.2f} MB/s")


def measure_tasks(text: str, data_dir: str, fields: Mapping[str, str | int], number: int) -> None:
    """Prepares one text by several programs at the same time and prints a line."""
    command = prepare_command(text, data_dir, {**fields, "num_processes": 1})
    started = time.perf_counter()
    programs = [
        subprocess.Popen([*command, f"--task={i}/{number}"], stdout=subprocess.DEVNULL)
        for i in range(number)
    ]
    for program in programs:
        if program.wait():
            raise subprocess.CalledProcessError(program.returncode, program.args)
    seconds = time.perf_counter() - started
    print(
        f"{_megabytes(text)} MB of text, --tasks={number}: {seconds:.1f} s, {_peak()}", flush=True
    )


def prepare_command(text: str, data_dir: str, fields: Mapping[str, str | int]) -> list[str]:
    """Returns the command that prepares a text with fields of `config.data`."""
    fields = {"source": f"text:{text}", **fields}
    command = [*(sys.executable, "-m", "bert_jax", "prepare"), "--config=configs/base.py"]
    return command + [
        f"--data_dir={data_dir}",
        *(f"--config.data.{k}={v}" for k, v in fields.items()),
    ]


def _megabytes(path: str) -> str:
    return f"{pathlib.Path(path).stat().st_size / 1e6:.0f}"


def _peak() -> str:
    # Of all processes that have ended so far, the largest: the smaller text comes first.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return f"at most {peak:.0f} MiB in any process"


def write_times(text: str, times: int, path: str) -> str:
    """Writes copies of a text; each has another word after every fifth line."""
    with open(path, "w", encoding="utf-8") as target:
        for number in range(times):
            target.write("\n" if number else "")  # ends the last document
            with open(text, encoding="utf-8", errors="replace") as source:
                for index, line in enumerate(source):
                    mark = index % 5 == 0 and line.strip()
                    target.write(f"{line.rstrip()} Copy{number}.\n" if mark else line)
    return path


def write_installed_docs(path: str) -> str:
    """Writes the default corpus as paragraphs."""
    import collections

    from bert_jax.text.installed_docs import InstalledDocs

    source = InstalledDocs()
    with open(path, "w", encoding="utf-8") as file:
        for chunk in source.chunks():
            for document in source.read(chunk, collections.Counter()):
                file.write(" ".join(document) + "\n\n")
    return path
