"""What the report shows of an evaluation of choices."""

from collections.abc import Sequence
from typing import Any

from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks import review_parts as review
from bert_jax.tasks.task import Prediction


def make_review(
    task: Any, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns calibration and the wrong choices, the most probable first."""
    sure = [max(prediction["probabilities"]) for prediction in predictions]
    right = [e.label == p["choice"] for e, p in zip(examples, predictions, strict=True)]
    wrong = sorted((i for i, ok in enumerate(right) if not ok), key=lambda i: -sure[i])
    errors = [
        review.error(
            example.id,
            example.endings[example.label or 0],
            predictions[i]["ending"],
            [review.text("", f"{example.context} {example.start}".strip())],
            sure[i],
        )
        for i in wrong
        for example in [examples[i]]
    ]
    return {"calibration": calibration_bins(sure, right), "errors": errors}
