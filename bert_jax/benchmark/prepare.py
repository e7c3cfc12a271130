"""How fast text becomes shards, stage by stage, and that memory does not grow with the text.

    python -m bert_jax.benchmark prepare [--text=FILE] [--times=1,10] [--vocab=PATH] [--mode=MODE]

The text is prepared as it is, and again written several times over (each time a little different,
so that it does not count as repeated). Without --text it is the installed documentation.
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from bert_jax.benchmark.machine import describe_machine

_STAGE = re.compile(r"^([a-z ]+): .* in ([\d.]+) s \(([\d.]+) MB/s\)$")
_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bert_jax.benchmark prepare")
    parser.add_argument("--text", help="file of running paragraphs, blank lines between documents")
    parser.add_argument("--times", default="1,10", help="how many times over, for each run")
    parser.add_argument("--vocab", default="train:wordpiece", help="as config.data.vocab")
    parser.add_argument("--mode", default="dynamic", help="as config.data.mode")
    parser.add_argument("--processes", type=int, default=0, help="as config.data.num_processes")
    options = parser.parse_args(argv)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or write_installed_docs(f"{folder}/docs.txt")
        for times in map(int, options.times.split(",")):
            repeated = text if times == 1 else write_times(text, times, f"{folder}/text{times}.txt")
            run(repeated, f"{folder}/data{times}", options)


def run(text: str, data_dir: str, options: argparse.Namespace) -> None:
    """Prepares one text in a process of its own and prints a line for each stage."""
    size = pathlib.Path(text).stat().st_size / 1e6
    command = [
        sys.executable,
        "-m",
        "bert_jax.commands.prepare",
        f"--config={_ROOT / 'configs/base.py'}",
    ]
    fields = {
        "source": f"text:{text}",
        "vocab": options.vocab,
        "mode": options.mode,
        "num_processes": options.processes,
    }
    command += [f"--data_dir={data_dir}", *(f"--config.data.{k}={v}" for k, v in fields.items())]
    started = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - started
    # Of all processes that have ended so far, the largest: run the smaller text first.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\n{size:.0f} MB of text: {seconds:.1f} s, at most {peak:.0f} MiB in any process")
    # A stage that takes long says several times how far it is: the last time counts.
    stages = {match[1]: match for match in map(_STAGE.match, output.splitlines()) if match}
    for name, match in stages.items():
        print(f"  {name:<12} {float(match[2]):8.1f} s {float(match[3]):8.2f} MB/s")


def write_times(text: str, times: int, path: str) -> str:
    """Writes a text several times over; each time another word is put after every fifth line."""
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
