"""From class logits to probabilities and labels, with what was fitted on an evaluation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.scores import calibration, thresholds


@dataclasses.dataclass(frozen=True)
class Decision:
    """How logits become probabilities and labels; the default changes nothing.

    Attributes:
      several: whether an example may have several labels.
      temperature: divides the logits.
      thresholds: a threshold for each label. A single label is the one with the largest ratio of
        probability to threshold; several labels are those above their thresholds. (): the most
        probable label, or all above 1/2.
    """

    several: bool = False
    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Returns the probabilities of labels, float64[examples, labels], from their logits."""
        logits = logits / self.temperature
        if self.several:
            return 0.5 * (1 + np.tanh(logits / 2))
        exp = np.exp(logits - logits.max(-1, keepdims=True))
        return exp / exp.sum(-1, keepdims=True)

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns int[examples], the chosen labels, or bool[examples, labels] for several."""
        if self.several:
            return probabilities > (np.array(self.thresholds) if self.thresholds else 0.5)
        return (probabilities / (self.thresholds or 1.0)).argmax(-1)

    def fitted(
        self,
        calibrates: bool,
        tunes: bool,
        logits: np.ndarray,
        gold: np.ndarray,
        score: Callable[[np.ndarray, np.ndarray], float],
    ) -> "Decision":
        """Returns the decision that is fitted on labelled examples.

        Args:
          calibrates, tunes: whether the temperature and the thresholds are fitted.
          logits: float64[examples, labels].
          gold: what `choose` would return if all labels were right.
          score: (gold, predicted) -> score of a single label.
        """
        fitted = Decision(self.several)
        if calibrates:
            temperature = calibration.fit_temperature(*self._answers(logits, gold))
            fitted = dataclasses.replace(fitted, temperature=temperature)
        if tunes:
            found = fitted.probabilities(logits)
            if self.several:
                chosen = thresholds.label_thresholds(found, gold)
            else:
                chosen = thresholds.class_thresholds(found, gold, lambda names: score(gold, names))
            fitted = dataclasses.replace(fitted, thresholds=chosen)
        return fitted

    def calibration_scores(self, logits: np.ndarray, gold: np.ndarray) -> dict[str, float]:
        """Returns `nll`, the negative log-likelihood, and `ece`, the expected calibration error.

        Each of several labels is a binary answer. Confidence is the largest probability.
        """
        logits, gold = self._answers(logits / self.temperature, gold)
        found = Decision().probabilities(logits)
        error = calibration.calibration_error(found.max(-1), found.argmax(-1) == gold)
        return {"nll": calibration.negative_log_likelihood(logits, gold), "ece": error}

    def _answers(self, logits: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns [answers, classes] and int[answers]; several labels are binary answers."""
        if not self.several:
            return logits, gold
        flat = logits.reshape(-1)
        return np.stack([np.zeros_like(flat), flat], axis=1), gold.reshape(-1).astype(int)

    def to_json(self, labels: Sequence[str]) -> dict[str, Any]:
        """Returns what `with_values` takes; {} for the default."""
        values: dict[str, Any] = {}
        if self.temperature != 1:
            values["temperature"] = self.temperature
        if self.thresholds:
            values["thresholds"] = dict(zip(labels, self.thresholds, strict=True))
        return values

    def with_values(self, values: Mapping[str, Any], labels: Sequence[str]) -> "Decision":
        """Returns the decision that `to_json` gave as `values`."""
        of_labels = values.get("thresholds", {})
        return dataclasses.replace(
            self,
            temperature=values.get("temperature", 1.0),
            thresholds=tuple(of_labels[label] for label in labels) if of_labels else (),
        )
