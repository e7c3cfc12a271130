"""Training as a user runs it: tokens a second, waiting for data and peak memory.

    python -m bert_jax.benchmark train [--config=FILE] [--steps=300] [--config.FIELD=VALUE ...]

The first report, which has the compilation in it, does not count; evaluation and checkpoints come
only at the end.
"""

import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bert_jax.benchmark.machine import describe_machine
from bert_jax.training.metrics import read_metrics

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bert_jax.benchmark train")
    parser.add_argument("--config", default=str(_ROOT / "configs/tiny.py"))
    parser.add_argument("--steps", type=int, default=300)
    options, overrides = parser.parse_known_args(argv)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as workdir:
        command = [
            *(sys.executable, "-m", "bert_jax.main", f"--config={options.config}"),
            *(f"--workdir={workdir}", f"--config.steps={options.steps}"),
            f"--config.log.every={max(1, options.steps // 10)}",
            *("--config.eval.every=0", "--config.checkpoint.every=0", *overrides),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [row["speed"] for row in read_metrics(workdir) if row["split"] == "train"][1:]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    speeds = sorted(row["tokens_per_second"] for row in rows)
    waiting = statistics.mean(row["waiting_for_data"] for row in rows)
    print(
        f"{options.config}: {statistics.median(speeds):,.0f} tokens/s (median of {len(speeds)}"
        f" reports, {speeds[0]:,.0f} to {speeds[-1]:,.0f}), {waiting:.1%} of the time waiting for"
        f" data, at most {peak:.0f} MiB in any process"
    )
