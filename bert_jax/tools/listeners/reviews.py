"""evaluation.json: what the newest evaluation found, for a reader and for the report.

A review is what a reader wants to see, as the task defines it (`Labelled.review`).

tasks/review_parts.py describes the parts. `errors` are sorted, the worst first.
"""

import os
from collections.abc import Callable
from typing import Any

import jax

from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices.trees import path_name
from bert_jax.files.atomic import write_json
from bert_jax.tasks import review_parts as review
from bert_jax.tools.listeners.verdicts import predict_without_encoder, verdict
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState

EVALUATION, PARAMETERS = "evaluation.json", "parameters.json"


class Review(Listener):
    """Writes what the report shows besides metrics.

    evaluation.json describes the checkpoint that config.checkpoint.use selects so far;
    parameters.json has a row for each parameter. The verdict on the last evaluation is shown too.
    """

    def __init__(self, show: Callable[[str], None]):
        self._show = show
        # What a model without an encoder predicts, once it was trained.
        self._simple: tuple[Any] | None = None

    def started(self, run: Run, state: TrainState) -> None:
        self._simple = None
        rows = parameter_rows(state.params)
        write_json(os.path.join(run.workdir, PARAMETERS), rows, sort_keys=False)

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Shows or writes the verdict; writes layer weights and what review_parts.py describes."""
        if not (is_last or is_chosen):
            return
        self._simple = self._simple or (predict_without_encoder(run),)
        lines = verdict(run, step, evaluation, *self._simple)
        for line in lines if is_last else ():
            self._show(line)
        if not is_chosen:
            return
        rows = run.evaluation_rows(run.phase_at(step - 1))[0]
        content: dict[str, Any] = {
            "step": step,
            "verdict": lines,
            "layer_weights": evaluation.layer_weights,
            "fitted": evaluation.fitted,
        }
        if isinstance(rows, LabelledRows):
            task: Any = run.task
            parts = task.review(rows.examples, evaluation.predictions)
            errors = parts.pop("errors", [])
            content |= {"examples": len(rows.examples), **parts}
            content |= {"wrong": len(errors), "errors": errors[: review.MAX_ERRORS]}
        else:
            content["examples"] = rows.rows_per_epoch
        write_json(os.path.join(run.workdir, EVALUATION), content, sort_keys=False)


def parameter_rows(params: Any) -> list[list[Any]]:
    """Returns [path, shape, dtype, sharding, number of values] of each parameter."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return [
        [
            path_name(path),
            "x".join(map(str, leaf.shape)),
            leaf.dtype.name,
            str(tuple(getattr(leaf.sharding, "spec", ()))),
            leaf.size,
        ]
        for path, leaf in leaves
    ]
