"""Early stopping: evaluations without improvement (config.eval.patience)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.training.metrics import is_best_when_low


class EarlyStopping:
    """Counts evaluations that are no better than the best so far.

    Args:
      limit: consecutive evaluations without improvement after which training ends; 0: never.
      metric: metric that decides; see `metrics.is_best_when_low`.
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
