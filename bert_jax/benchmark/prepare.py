"""Measures the speed and the memory of data preparation, stage by stage.

    python -m bert_jax benchmark prepare [--text=FILE] [--times=1,10] [--vocab=PATH] [--mode=MODE]

The text is prepared as it is, and again repeated several times (with small changes, so that copies
do not count as duplicates). Without --text it is the installed documentation.
"""

import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from bert_jax.benchmark.machine import describe_machine

_STAGE = re.compile(r"^([a-z ]+): .* in ([\d.]+) s \(([\d.]+) MB/s\)$")


def run(text: str, times: Sequence[int], vocab: str, mode: str, processes: int) -> None:
    """Prints a table for each size of the text.

    Args:
      text: file of paragraphs, with blank lines between documents; empty: installed documentation.
      times: number of copies of the text, for each table.
      vocab, mode, processes: `config.data.vocab`, `mode` and `num_processes`.
    """
    print(describe_machine())
    fields = {"vocab": vocab, "mode": mode, "num_processes": processes}
    with tempfile.TemporaryDirectory() as folder:
        text = text or write_installed_docs(f"{folder}/docs.txt")
        for count in times:
            repeated = text if count == 1 else write_times(text, count, f"{folder}/text{count}.txt")
            measure(repeated, f"{folder}/data{count}", fields)


def measure(text: str, data_dir: str, fields: Mapping[str, str | int]) -> None:
    """Prepares one text in a new process and prints a line for each stage."""
    size = pathlib.Path(text).stat().st_size / 1e6
    fields = {"source": f"text:{text}", **fields}
    command = [*(sys.executable, "-m", "bert_jax", "prepare"), "--config=configs/base.py"]
    command += [f"--data_dir={data_dir}", *(f"--config.data.{k}={v}" for k, v in fields.items())]
    started = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - started
    # Of all processes that have ended so far, the largest: run the smaller text first.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\n{size:.0f} MB of text: {seconds:.1f} s, at most {peak:.0f} MiB in any process")
    # A long stage reports its progress several times: the last report counts.
    stages = {match[1]: match for match in map(_STAGE.match, output.splitlines()) if match}
    for name, match in stages.items():
        print(f"  {name:<12} {float(match[2]):8.1f} s {float(match[3]):8.2f} MB/s")


def write_times(text: str, times: int, path: str) -> str:
    """Writes copies of a text; each has another word after every fifth line."""
    with open(path, "w", encoding="utf-8") as target:
        for number in range(times):
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
