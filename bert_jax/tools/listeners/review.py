"""evaluation.json: what the newest evaluation found, for the report."""

import os
from collections.abc import Mapping

from bert_jax.files.atomic import write_json
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run

EVALUATION = "evaluation.json"


class Review(Listener):
    """Writes evaluation.json for the checkpoint that config.checkpoint.use selects so far."""

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Writes health verdict, layer weights and what scores/review.py describes."""
        if not is_chosen:
            return
        rows = run.evaluation_rows(run.phase_at(step - 1))[0]
        content = {
            "step": step,
            "verdict": verdict(run, step, evaluation.values),
            "layer_weights": evaluation.layer_weights,
            **run.data.review(rows, evaluation.predictions),
        }
        write_json(os.path.join(run.workdir, EVALUATION), content, sort_keys=False)


def verdict(run: Run, step: int, values: Mapping[str, float]) -> list[str]:
    """Returns lines that compare the metrics after `step` steps with those of simple baselines."""
    phase = run.phase_at(step - 1)
    training = run.training_rows(phase) if run.training else None
    return run.data.verdict(values, training, run.evaluation_rows(phase))
