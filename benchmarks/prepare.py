"""Measures the speed and the memory of data preparation, stage by stage.

python -m benchmarks.prepare --config.data.source=text:FILE --config.data.num_processes=2
"""

import argparse
import re
import resource
import tempfile
import time

from benchmarks import command
from benchmarks.side_by_side import describe_machine, run_command, table
from bert_jax.tools.cli.command_line import CONFIG, read_config

FLAGS = CONFIG
_STAGE = re.compile(r"^([a-z ]+): .* in ([\d.]+) s \(([\d.]+) MB/s\)$", re.MULTILINE)


def run(flags: argparse.Namespace) -> None:
    """Prints the time, the memory, and the stages.

    Raises:
      UserError: the preparation failed.
    """
    flags.config = flags.config or "configs/base.py"
    read_config(flags)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        output = run_command("prepare", [*command.config_words(flags), f"--data_dir={folder}"])
        seconds = time.perf_counter() - start
    # Of all processes that have ended so far, the largest.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{seconds:.1f} s, at most {peak:.0f} MiB in any process")
    # A long stage reports its progress several times: the last report counts.
    stages = {name: (spent, speed) for name, spent, speed in _STAGE.findall(output)}
    print("\n".join(table(("s", "MB/s"), stages)))


if __name__ == "__main__":
    command.start("prepare")
