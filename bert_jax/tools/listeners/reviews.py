"""evaluation.json: what the newest evaluation found, for a reader and for the report.

A review is what a reader wants to see, by the class of the task.

review_parts.py describes the parts. `examples` are labelled, `predictions` those that the task's
collector returned for them, in the same order; `errors` are sorted, the worst first.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.labelled.examples import ChoiceExample, Question, TaggedExample, TextExample
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.data.labelled.tags import as_iob2
from bert_jax.devices.trees import path_name
from bert_jax.files.atomic import write_json
from bert_jax.scores import cmrc, squad
from bert_jax.scores import entities as entity_scores
from bert_jax.scores.calibration import calibration_bins
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.span import Span
from bert_jax.tasks.tagging import Tagging
from bert_jax.tasks.task import Prediction
from bert_jax.tools.listeners import review_parts as review
from bert_jax.tools.listeners.verdicts import class_counts, verdict
from bert_jax.training.listener import Evaluation, Listener
from bert_jax.training.run import Run
from bert_jax.training.state import TrainState

Parts = dict[str, Any]
EVALUATION, PARAMETERS = "evaluation.json", "parameters.json"


class Review(Listener):
    """Writes what the report shows besides metrics.

    evaluation.json is of the checkpoint that config.checkpoint.use selects so far; parameters.json
    has a row for each parameter. The verdict on the last evaluation is shown too.
    """

    def __init__(self, show: Callable[[str], None]):
        """Args:
        show: takes the lines of the last verdict.
        """
        self._show = show

    def started(self, run: Run, state: TrainState) -> None:
        rows = parameter_rows(state.params)
        write_json(os.path.join(run.workdir, PARAMETERS), rows, sort_keys=False)

    def evaluation(
        self, run: Run, step: int, evaluation: Evaluation, *, is_last: bool, is_chosen: bool
    ) -> None:
        """Shows or writes the verdict; writes layer weights and what review_parts.py describes."""
        lines = verdict(run, step, evaluation) if is_last or is_chosen else []
        if is_last:
            for line in lines:
                self._show(line)
        if not is_chosen:
            return
        rows = run.evaluation_rows(run.phase_at(step - 1))[0]
        content = {
            "step": step,
            "verdict": lines,
            "layer_weights": evaluation.layer_weights,
            "fitted": evaluation.fitted,
            **make_review(run.task, rows, evaluation.predictions),
        }
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


def make_review(task: Any, rows: Any, predictions: Sequence[Prediction]) -> Parts:
    """Returns the review of an evaluation as JSON values.

    Args:
      task: the task.
      rows: the evaluated rows.
      predictions: predictions for the examples of `rows`; empty for a corpus.
    """
    if not isinstance(rows, LabelledRows):
        return {"examples": rows.rows_per_epoch}
    make = _REVIEWS.get(type(task))
    parts = make(task, rows.examples, predictions) if make else {}
    errors = parts.pop("errors", [])
    return {
        "examples": len(rows.examples),
        **parts,
        "wrong": len(errors),
        "errors": errors[: review.MAX_ERRORS],
    }


# ------------------------------------------------------------------ classification


def review_classification(
    task: Classification, examples: Sequence[TextExample], predictions: Sequence[Prediction]
) -> Parts:
    """Returns classes, confusion and calibration; of numbers their pairs."""
    gold, found = task.gold(examples), task.found(predictions)
    if task.kind == "regression":
        wrongness = np.abs(gold - found)
        parts: Parts = {"values": review.spread_values(gold, found)}
    elif task.kind == "multi":
        wrongness = (gold != found).sum(axis=1).astype(float)
        parts = {"classes": review.class_rows(class_counts(task, examples, predictions))}
    else:
        sure = np.array([p["probabilities"][p["label"]] for p in predictions])
        wrongness = (gold != found) * sure
        parts = {
            "classes": review.class_rows(class_counts(task, examples, predictions)),
            "confusion": review.confusion(gold, found, len(task.labels)),
            "calibration": calibration_bins(sure, gold == found),
        }
    worst = [i for i in np.argsort(-wrongness, kind="stable").tolist() if wrongness[i] > 0]
    return parts | {"errors": [_wrong_class(examples[i], predictions[i]) for i in worst]}


def _wrong_class(example: TextExample, prediction: Prediction) -> Parts:
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


# ------------------------------------------------------------------ tagging


def review_tags(
    task: Tagging, examples: Sequence[TaggedExample], predictions: Sequence[Prediction]
) -> Parts:
    """Returns classes, of other tags than entities the confusion, calibration."""
    gold = [example.tags or () for example in examples]
    found = [prediction["tags"] for prediction in predictions]
    pairs = [pair for a, b in zip(gold, found, strict=True) for pair in zip(a, b, strict=True)]
    parts: Parts = {"classes": review.class_rows(class_counts(task, examples, predictions))}
    if not task.entities:
        numbers = {name: i for i, name in enumerate(parts["classes"])}
        true, guessed = ([numbers[pair[side]] for pair in pairs] for side in (0, 1))
        parts["confusion"] = review.confusion(true, guessed, len(numbers))
    sure = [p for prediction in predictions for p in prediction["probabilities"]]
    parts["calibration"] = calibration_bins(sure, [a == b for a, b in pairs])
    errors = [_wrong_tags(task, *pair) for pair in zip(examples, predictions, strict=True)]
    wrong = [(count, error) for count, error in errors if count]
    return parts | {"errors": [error for _, error in sorted(wrong, key=lambda e: -e[0])]}


def _wrong_tags(task: Tagging, example: TaggedExample, prediction: Prediction) -> tuple[int, Parts]:
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


# ------------------------------------------------------------------ spans and choices


def review_spans(
    task: Span, examples: Sequence[Question], predictions: Sequence[Prediction]
) -> Parts:
    """Returns calibration; right is what the official script finds equal to a gold answer."""
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


def review_choices(
    task: MultipleChoice, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]
) -> Parts:
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


_REVIEWS: dict[type, Callable[..., Parts]] = {
    Classification: review_classification,
    Tagging: review_tags,
    Span: review_spans,
    MultipleChoice: review_choices,
}
