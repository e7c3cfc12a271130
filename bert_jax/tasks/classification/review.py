"""What the report shows of an evaluation of texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.labelled.examples import TextExample
from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks import review_parts as review
from bert_jax.tasks.task import Prediction


def make_review(
    task: Any, examples: Sequence[TextExample], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns classes, confusion, calibration and errors; for numbers, pairs and errors."""
    gold, found = task.gold(examples), task.found(predictions)
    if task.kind == "regression":
        wrongness = np.abs(gold - found)
        parts: dict[str, Any] = {"values": review.spread_values(gold, found)}
    elif task.kind == "multi":
        wrongness = (gold != found).sum(axis=1).astype(float)
        parts = {"classes": review.class_rows(task.counts(examples, predictions))}
    else:
        sure = np.array([p["probabilities"][p["label"]] for p in predictions])
        wrongness = (gold != found) * sure
        parts = {
            "classes": review.class_rows(task.counts(examples, predictions)),
            "confusion": review.confusion(gold, found, len(task.labels)),
            "calibration": calibration_bins(sure, gold == found),
        }
    worst = [i for i in np.argsort(-wrongness, kind="stable").tolist() if wrongness[i] > 0]
    return parts | {"errors": [_wrong_class(examples[i], predictions[i]) for i in worst]}


def _wrong_class(example: TextExample, prediction: Prediction) -> dict[str, Any]:
    found, probability = prediction.get("label"), None
    if found is not None:
        probability = prediction["probabilities"][found]
    elif "value" in prediction:
        found = f"{prediction['value']:.3f}"
    else:
        found = ", ".join(prediction["labels"]) or "none"
    texts = [review.text("", example.text_a), review.text("second text", example.text_b)]
    gold = ", ".join(example.labels or ()) or "none"
    return review.error(example.id, gold, found, texts, probability)
