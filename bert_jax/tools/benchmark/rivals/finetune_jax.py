"""This program in the fine-tuning benchmark: the command that a user types."""

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.training.metrics import read_metrics


def build(
    arguments: Sequence[str], metric: str, seed: int, epochs: float
) -> tuple[dict, Callable[[], list[float]]]:
    """Each measurement is a run with the next seed.

    Args:
      arguments: of `python -m bert_jax train`, without workdir and seed.
      metric: the score.
      seed: of the first run.
      epochs: of a run.
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
        reports = [row for row in rows if row["split"] == "train"]
        # The first report includes the compilation.
        speeds = [report["speed"]["examples_per_second"] for report in reports[1:]]
        values = [row for row in rows if row["split"] == "validation"][-1]
        return [values[metric], statistics.median(speeds), seconds, *epoch_losses(reports, epochs)]

    return {}, measure


def epoch_losses(reports: Sequence[Mapping[str, Any]], epochs: float) -> list[float]:
    """Returns the mean training loss of each epoch.

    Args:
      reports: the lines of training in metrics.jsonl, each about the steps since the one before.
      epochs: of the run; the last one may be a part.
    """
    steps = reports[-1]["step"]
    sums = np.zeros((math.ceil(epochs), 2))
    before = 0
    for report in reports:
        middle = (before + report["step"]) / 2
        size = report["step"] - before
        sums[int(middle / steps * epochs)] += size * report["loss"], size
        before = report["step"]
    return (sums[:, 0] / np.maximum(sums[:, 1], 1)).tolist()
