"""This program in the fine-tuning benchmark: the command that a user types."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from bert_jax.training.metrics import read_metrics


def build(
    arguments: Sequence[str], metric: str, seed: int
) -> tuple[dict, Callable[[], list[float]]]:
    """Each measurement is a run with the next seed.

    Args:
      arguments: of `python -m bert_jax train`, without workdir and seed.
      metric: the score.
      seed: of the first run.
    """
    seeds = iter(range(seed, sys.maxsize))

    def measure() -> list[float]:
        with tempfile.TemporaryDirectory() as workdir:
            command = [
                sys.executable,
                "-m",
                "bert_jax",
                "train",
                *arguments,
                "--compilation_cache=off",  # every run is one that nothing was compiled for
                f"--workdir={workdir}",
            ]
            start = time.perf_counter()
            subprocess.run(
                [*command, f"--config.seed={next(seeds)}"], check=True, stdout=subprocess.DEVNULL
            )
            seconds = time.perf_counter() - start
            rows = read_metrics(workdir)
        # The first report includes the compilation.
        reports = [row["speed"] for row in rows if row["split"] == "train"][1:]
        speeds = [report["examples_per_second"] for report in reports]
        values = [row for row in rows if row["split"] == "validation"][-1]
        return [values[metric], statistics.median(speeds), seconds]

    return {}, measure
