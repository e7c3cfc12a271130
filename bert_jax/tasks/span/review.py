"""What the report shows of an evaluation of answers."""

from collections.abc import Sequence
from typing import Any

from bert_jax.data.labelled.examples import Question
from bert_jax.scores import cmrc, squad
from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks import review_parts as review
from bert_jax.tasks.task import Prediction


def make_review(
    task: Any, examples: Sequence[Question], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns calibration and errors; right answers equal a gold one for the official script."""
    exact = cmrc.exact if task.is_chinese else squad.exact
    sure, right, errors = [], [], []
    for example, prediction in zip(examples, predictions, strict=True):
        if not (example.answers or task.null_answers):
            continue
        answer, best = prediction["answer"], next(iter(prediction["n_best"]), None)
        texts = [text for text, _ in example.answers] or [""]
        is_right = max(exact(text, answer) for text in texts) > 0
        probability = best["probability"] if best and answer else None
        if probability is not None:
            sure.append(probability)
            right.append(is_right)
        if not is_right:
            gold = {(at, at + len(text), "") for text, at in example.answers if at >= 0}
            found = {(best["start"], best["end"], "")} if best and answer else set()
            shown = [
                review.text("question", example.question),
                review.text("", example.context, review.marked(gold, found)),
            ]
            names = (texts[0] or "no answer", answer or "no answer")
            errors.append(review.error(example.id, *names, shown, probability))
    errors.sort(key=lambda error: -error.get("probability", 0.0))
    return {"calibration": calibration_bins(sure, right), "errors": errors}
