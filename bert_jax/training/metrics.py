"""Metrics on the host: sums and means, metrics.jsonl, early stopping."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.files.atomic import AppendFile, read_json_lines, write_text
from bert_jax.files.errors import UserError
from bert_jax.tasks.losses import Sums, loss_names

# Prefix of the metrics of general text (`config.data.general`).
GENERAL = "general_"


class Totals:
    """Sums of numerators and denominators in float64, restored exactly from a checkpoint.

    A mean that is minimized is a part of the loss; in JSON a third number marks it.
    """

    def __init__(self, values: Mapping[str, list[float]] | None = None):
        values = values or {}
        self._values = {name: pair[:2] for name, pair in values.items()}
        self._losses = {name: True for name, pair in values.items() if pair[2:]}

    def add(self, sums: Sums, is_loss: bool = True) -> None:
        """Adds Sums that have been fetched from the device.

        Args:
          sums: Sums by name.
          is_loss: whether those that are minimized are parts of `loss`.
        """
        for name, item in sums.items():
            self.add_pair(name, float(item.numerator), float(item.denominator))
        self._losses |= dict.fromkeys(loss_names(sums) if is_loss else (), True)

    def add_pair(self, name: str, numerator: float, denominator: float = 1.0) -> None:
        """Adds to one mean."""
        pair = self._values.setdefault(name, [0.0, 0.0])
        pair[0] += numerator
        pair[1] += denominator

    def means(self) -> dict[str, float]:
        """Returns numerator / denominator of each name; NaN where nothing was counted.

        `loss`, the sum of its parts, comes first; it is NaN if it has none.
        """
        means = {
            name: numerator / denominator if denominator else float("nan")
            for name, (numerator, denominator) in self._values.items()
        }
        parts = [means[name] for name in self._losses]
        return {"loss": sum(parts) if parts else float("nan"), **means}

    def end_loss(self) -> None:
        """Makes what was added so far no part of `loss`."""
        self._losses.clear()

    def clear(self) -> None:
        """Resets all sums."""
        self._values.clear()
        self._losses.clear()

    def to_json(self) -> dict[str, list[float]]:
        """Returns what the constructor takes; JSON keeps every bit of a float64."""
        marks = {True: [1.0], False: []}
        return {name: pair + marks[name in self._losses] for name, pair in self._values.items()}


def is_best_when_low(metric: str) -> bool:
    """Returns whether the lowest value of a metric is the best, by its name."""
    return any(word in metric for word in ("loss", "perplexity", "bits_per", "error", "distance"))


class EarlyStopping:
    """Counts evaluations that are no better than the best so far (config.eval.patience).

    Args:
      limit: consecutive evaluations without improvement after which training ends; 0: never.
      metric: metric that decides; see `is_best_when_low`.
      evaluations: the run's evaluations so far, as in metrics.jsonl.
    """

    def __init__(self, limit: int, metric: str, evaluations: Sequence[Mapping[str, Any]]):
        self._limit, self._metric = limit, metric
        self._values: list[float] = []
        for evaluation in evaluations:
            self.add(evaluation)

    def add(self, evaluation: Mapping[str, Any]) -> bool:
        """Adds an evaluation; returns whether it is the best so far.

        Raises:
          UserError: it lacks the metric.
        """
        if self._metric not in evaluation:
            measured = ", ".join(name for name, v in evaluation.items() if isinstance(v, float))
            raise UserError(
                f"config.metrics or config.checkpoint.best_metric names {self._metric!r}, which"
                f" this task does not measure: choose from {measured}."
            )
        value = evaluation[self._metric]
        if value is None or np.isnan(value):  # metrics.jsonl has null
            value = -np.inf
        elif is_best_when_low(self._metric):
            value = -value
        self._values.append(value)
        return value > max(self._values[:-1], default=-np.inf)

    @property
    def has_ended(self) -> bool:
        """Whether training ends."""
        if not self._limit or not self._values:
            return False
        return len(self._values) - 1 - int(np.argmax(self._values)) >= self._limit


class MetricsFile:
    """Writes workdir/metrics.jsonl.

    Lines are `{"step": 10, "split": "train", "loss": ...}`. Measured times are under "speed",
    separate from the reproducible numbers: tokens per second since the last report, and `seconds`
    and `tokens` of the whole run so far, without evaluations.
    """

    def __init__(self, workdir: str, first_step: int):
        """Opens the file of a run that continues after `first_step` steps.

        Lines of later steps, which the run wrote after its last checkpoint, are removed: they will
        be written again. So are those of step 0, before the first step.
        """
        path = pathlib.Path(workdir, "metrics.jsonl")
        rows = read_metrics(workdir) if first_step else []
        kept = [row for row in rows if row["step"] <= first_step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        # "speed" of the last line that has it; empty if there is none.
        self.last_speed: dict[str, float] = next(
            (row["speed"] for row in reversed(kept) if "speed" in row), {}
        )
        self._file = AppendFile(path)

    def write(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        """Writes one line."""
        # JSON has no NaN: the mean of a window without applied steps is null.
        known = {name: None if np.isnan(value) else value for name, value in values.items()}
        row: dict[str, Any] = {"step": step, "split": split, **known}
        if speed:
            row["speed"] = dict(speed)
        self._file.write_line(json.dumps(row))

    def sync(self) -> None:
        """Returns when all lines are on disk."""
        self._file.sync()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_evaluations(workdir: str, step: int) -> list[dict[str, Any]]:
    """Returns the evaluations of a run after its first step and up to `step`, in order."""
    return [row for row in _evaluations(workdir) if 0 < row["step"] <= step]


def read_first_evaluation(workdir: str) -> dict[str, float]:
    """Returns the metrics before the first step (`config.eval.at_start`); {} without them."""
    row = next((row for row in _evaluations(workdir) if row["step"] == 0), {})
    return {name: value for name, value in row.items() if isinstance(value, float)}


def _evaluations(workdir: str) -> list[dict[str, Any]]:
    return [row for row in read_metrics(workdir) if row["split"] == "validation"]


def read_metrics(workdir: str) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics.jsonl; an incomplete last line is left out."""
    return read_json_lines(pathlib.Path(workdir, "metrics.jsonl"))


def history(workdir: str) -> dict[str, dict[str, np.ndarray]]:
    """Returns the metrics of a run as arrays: split -> name -> float64[reports] (step: int64).

    `history(workdir)["train"]["loss"]` belongs to the steps `history(workdir)["train"]["step"]`.
    Measured times are left out; a metric that a report lacks is NaN.
    """
    splits: dict[str, list[dict[str, Any]]] = {}
    for row in read_metrics(workdir):
        row.pop("speed", None)
        splits.setdefault(row.pop("split"), []).append(row)
    return {
        split: {
            name: np.array([np.nan if row.get(name) is None else row[name] for row in rows])
            for name in dict.fromkeys(name for row in rows for name in row)
        }
        for split, rows in splits.items()
    }
