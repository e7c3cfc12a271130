"""evaluation.json: what the newest evaluation found, for the report."""

import os

from bert_jax.files.atomic import write_json
from bert_jax.tools.listeners.reviews import make_review
from bert_jax.tools.listeners.verdicts import verdict
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run

EVALUATION = "evaluation.json"


class Review(Listener):
    """Writes evaluation.json for the checkpoint that config.checkpoint.use selects so far."""

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Writes health verdict, layer weights and what review_parts.py describes."""
        if not is_chosen:
            return
        rows = run.evaluation_rows(run.phase_at(step - 1))[0]
        content = {
            "step": step,
            "verdict": verdict(run, step, evaluation.values),
            "layer_weights": evaluation.layer_weights,
            **make_review(run.data, rows, evaluation.predictions),
        }
        write_json(os.path.join(run.workdir, EVALUATION), content, sort_keys=False)
