"""Measures training as a user runs it: tokens per second, waiting for data, and peak memory.

    python -m bert_jax benchmark train [--config=FILE] [--steps=300] [--config.FIELD=VALUE ...]

The first report, which includes the compilation, does not count; evaluation and checkpoints happen
only at the end.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bert_jax.tools.benchmark.machine import describe_machine
from bert_jax.training.metrics import read_metrics


def run(config: str, words: Sequence[str], steps: int) -> None:
    """Trains in a new process and prints the measurements.

    Args:
      config: configuration file.
      words: further flags of `python -m bert_jax train`.
      steps: of the run.
    """
    print(describe_machine())
    with tempfile.TemporaryDirectory() as workdir:
        command = [
            *(sys.executable, "-m", "bert_jax", "train", f"--config={config}"),
            *(f"--workdir={workdir}", f"--config.steps={steps}"),
            f"--config.log.every={max(1, steps // 10)}",
            *("--config.eval.every=0", "--config.checkpoint.every=0", *words),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [row["speed"] for row in read_metrics(workdir) if row["split"] == "train"][1:]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    speeds = sorted(row["tokens_per_second"] for row in rows)
    waiting = statistics.mean(row["waiting_for_data"] for row in rows)
    print(
        f"{config}: {statistics.median(speeds):,.0f} tokens/s (median of {len(speeds)}"
        f" reports, {speeds[0]:,.0f} to {speeds[-1]:,.0f}), {waiting:.1%} of the time waiting for"
        f" data, at most {peak:.0f} MiB in any process"
    )
