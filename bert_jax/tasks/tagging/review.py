"""What the report shows of an evaluation of tags."""

from collections.abc import Sequence
from typing import Any

from bert_jax.data.labelled.examples import TaggedExample
from bert_jax.data.labelled.tags import as_iob2
from bert_jax.scores import entities as entity_scores
from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks import review_parts as review
from bert_jax.tasks.task import Prediction


def tags_of(
    examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    """Returns the gold and the predicted tags of each sentence."""
    return [example.tags or () for example in examples], [found["tags"] for found in predictions]


def make_review(
    task: Any, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
) -> dict[str, Any]:
    """Returns classes, the confusion of tags other than entities, calibration and errors."""
    gold, found = tags_of(examples, predictions)
    pairs = [pair for a, b in zip(gold, found, strict=True) for pair in zip(a, b, strict=True)]
    parts: dict[str, Any] = {"classes": review.class_rows(task.counts(examples, predictions))}
    if not task.entities:
        numbers = {name: i for i, name in enumerate(parts["classes"])}
        true, guessed = ([numbers[pair[side]] for pair in pairs] for side in (0, 1))
        parts["confusion"] = review.confusion(true, guessed, len(numbers))
    sure = [p for prediction in predictions for p in prediction["probabilities"]]
    parts["calibration"] = calibration_bins(sure, [a == b for a, b in pairs])
    errors = [_wrong_tags(task, *pair) for pair in zip(examples, predictions, strict=True)]
    wrong = [(count, error) for count, error in errors if count]
    return parts | {"errors": [error for _, error in sorted(wrong, key=lambda e: -e[0])]}


def _wrong_tags(
    task: Any, example: TaggedExample, prediction: Prediction
) -> tuple[int, dict[str, Any]]:
    """Returns the number of errors in a sentence, and the sentence with its spans."""
    text, places = example.locate(task.between_words)

    def spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
        singles = {(tag, i, i) for i, tag in enumerate(tags)}
        found = entity_scores.entities(as_iob2(tags)) if task.entities else singles
        return {(places[first][0], places[last][1], kind) for kind, first, last in found}

    true, guessed = spans(example.tags or ()), spans(prediction["tags"])
    shown = (true, guessed) if task.entities else (true - guessed, guessed - true)
    texts = [review.text("", text, review.marked(*shown))]
    what = "entities" if task.entities else "other tags"
    counts = [f"{len(some)} {what}" for some in shown]
    return len(true ^ guessed), review.error(example.id, counts[0], counts[1], texts)
