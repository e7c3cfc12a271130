"""Listener: how the core reports progress and results, without printing or plotting itself."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.tasks.task import Prediction
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
      values: metric by name.
      predictions: for the examples of the first evaluation set, which selects checkpoints.
      layer_weights: softmax weights of a scalar mix of layers; empty without one.
      fitted: `Task.fitted_values` that the predictions were made with.
    """

    values: dict[str, float]
    predictions: Sequence[Prediction]
    layer_weights: tuple[float, ...] = ()
    fitted: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Listener:
    """Receives events of training, evaluation and prediction; every method does nothing by default.

    Subclasses override what they need. Events arrive in the main thread of process 0. An exception
    that a method raises ends the run like any other error; `close` is called in any case.

        class LossCurve(Listener):
            def __init__(self):
                self.losses = []

            def metrics(self, step, split, values, speed):
                if split == "train":
                    self.losses.append(values["loss"])
    """

    def line(self, text: str) -> None:
        """Receives a message for the user, one line without a line break."""

    def progress(self, step: int, steps: int) -> None:
        """Receives the number of steps done so far, of `steps`; called after each step."""

    def metrics(
        self, step: int, split: str, values: Mapping[str, float], speed: Mapping[str, float]
    ) -> None:
        """Receives the metrics that were just written to metrics.jsonl.

        Args:
          step: steps done.
          split: "train" (means since the last report) or "validation".
          values: metric by name, `loss` first in "train"; NaN where nothing was counted.
          speed: measurements by name, such as `tokens_per_second`; see `reporting.Clock`.
        """

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Receives the result of an evaluation, after its `metrics`.

        Args:
          run: the run.
          step: steps done.
          evaluation: metrics and predictions.
          is_last: whether no other evaluation of the run follows.
          is_chosen: whether config.checkpoint.use selects this step among those so far.
        """

    def opened(self, run: Run) -> None:
        """Receives the run when its data are open, before parameters are restored or created."""

    def started(self, run: Run, state: TrainState) -> None:
        """Receives the state that training starts or resumes from."""

    def saving(self, step: int) -> None:
        """Called just before the checkpoint of `step` is saved.

        A listener that writes files must have everything up to this step on disk when it returns.
        """

    def chosen(self, run: Run, step: int, values: Mapping[str, float]) -> None:
        """Receives step and metrics of the checkpoint that a complete run uses from now on."""

    def close(self) -> None:
        """Releases what `started` opened, however the run ends; the listener may be used again.

        Only `line` and `chosen` may follow before the next run is `opened`.
        """


class Listeners(Listener):
    """Passes every event on to several listeners, in order."""

    def __init__(self, *listeners: Listener):
        self._listeners = listeners

    def line(self, text):
        for listener in self._listeners:
            listener.line(text)

    def progress(self, step, steps):
        for listener in self._listeners:
            listener.progress(step, steps)

    def metrics(self, step, split, values, speed):
        for listener in self._listeners:
            listener.metrics(step, split, values, speed)

    def evaluation(self, run, step, evaluation, *, is_last, is_chosen):
        for listener in self._listeners:
            listener.evaluation(run, step, evaluation, is_last=is_last, is_chosen=is_chosen)

    def opened(self, run):
        for listener in self._listeners:
            listener.opened(run)

    def started(self, run, state):
        for listener in self._listeners:
            listener.started(run, state)

    def saving(self, step):
        for listener in self._listeners:
            listener.saving(step)

    def chosen(self, run, step, values):
        for listener in self._listeners:
            listener.chosen(run, step, values)

    def close(self):
        for listener in self._listeners:
            listener.close()
