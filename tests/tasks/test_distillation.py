"""What a student learns of a teacher, against formulas in numpy.

That gradients of microbatches on a mesh add up is a case of test_auxiliary.
"""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.groups import DistillationConfig
from bert_jax.models.task_heads import IMPOSSIBLE, SpanOutputs
from bert_jax.tasks import losses
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.distillation import apply_both, training_losses
from bert_jax.tasks.losses import loss_names
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.span import Span
from bert_jax.tasks.tagging import Tagging
from bert_jax.tasks.task import Taught
from tests.tasks.test_auxiliary import random_params
from tests.tiny import make_batch, make_model, make_task

NO_DROPOUT = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
STUDENT = make_model(num_layers=1, **NO_DROPOUT)
TEACHER = make_model(num_layers=2, hidden_size=24, num_heads=4, **NO_DROPOUT)
CONFIG = DistillationConfig(teacher="runs/teacher", weight=0.25, temperature=2.0)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def kl(teacher, student):
    return (teacher * (np.log(teacher) - np.log(student))).sum(-1)


def soft(logits, teacher, temperature):
    """T^2 KL(teacher || student) in double precision."""
    logits, teacher = (np.asarray(x, np.float64) / temperature for x in (logits, teacher))
    return temperature**2 * kl(softmax(teacher), softmax(logits))


# ------------------------------------------------------------------ predictions


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def outputs_like(**shapes):
    """The outputs of a student and of a teacher with random logits of these shapes."""
    return [
        SimpleNamespace(**{name: jnp.asarray(draw(*shapes[name], seed=seed)) for name in shapes})
        for seed in (1, 2)
    ]


WEIGHTS: Any = np.array([1, 0, 1], np.float32)


@pytest.mark.parametrize("kind", ["single", "multi", "regression"])
def test_of_classes_labels_and_numbers(kind):
    num_classes = 1 if kind == "regression" else 4
    task = Classification(model=STUDENT, problem_type=kind)
    student, teacher = outputs_like(logits=(3, num_classes))
    found = task.distilled_losses(student, teacher, {"weights": WEIGHTS}, 2.0)["task_loss"]
    x, y = (np.asarray(model.logits, np.float64) for model in (student, teacher))
    if kind == "single":
        values = soft(x, y, 2.0)
    elif kind == "multi":
        p, q = (1 / (1 + np.exp(-z / 2.0)) for z in (y, x))
        values = 4.0 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean(-1)
    else:
        values = (x - y)[:, 0] ** 2
    np.testing.assert_allclose(found.numerator, values[0] + values[2], rtol=1e-5)
    assert found.denominator == 2


def test_of_tags_and_of_choices():
    """Choices that are padding have no probability, and rows of padding no weight."""
    weights: Any = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    student, teacher = outputs_like(logits=(2, 3, 5))
    found = Tagging(model=STUDENT).distilled_losses(student, teacher, {"weights": weights}, 1.0)
    expected = (soft(student.logits, teacher.logits, 1.0) * weights).sum()
    np.testing.assert_allclose(found["task_loss"].numerator, expected, rtol=1e-5)
    assert found["task_loss"].denominator == 3

    student, teacher = outputs_like(logits=(3, 4))
    expected = soft(student.logits[::2, :3], teacher.logits[::2, :3], 3.0).sum()
    for outputs in (student, teacher):
        outputs.logits = outputs.logits.at[:, 3].set(IMPOSSIBLE).at[1].set(IMPOSSIBLE)
    found = MultipleChoice(model=STUDENT).distilled_losses(
        student, teacher, {"weights": WEIGHTS}, 3.0
    )
    np.testing.assert_allclose(found["task_loss"].numerator, expected, rtol=1e-5)


def test_of_spans_also_of_several_examples_in_a_row():
    task = Span(model=STUDENT)
    both: Any = [
        SpanOutputs(jnp.asarray(draw(2, 6, seed=s)), jnp.asarray(draw(2, 6, seed=s + 9)), None)  # type: ignore
        for s in (1, 2)
    ]
    example_ids: Any = np.array([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 0, 0]], np.int32)
    single: Any = {"weights": np.ones(2, np.float32), "example_ids": example_ids}
    packed = single | {"weights": np.array([[1, 1], [1, 0]], np.float32)}

    def expected(row, here):
        student, teacher = both
        start = soft(student.start_logits[row, here], teacher.start_logits[row, here], 2.0)
        return (start + soft(student.end_logits[row, here], teacher.end_logits[row, here], 2.0)) / 2

    found = task.distilled_losses(both[0], both[1], single, 2.0)["task_loss"]
    np.testing.assert_allclose(found.numerator, sum(expected(r, slice(6)) for r in (0, 1)), 1e-5)
    found = task.distilled_losses(both[0], both[1], packed, 2.0)["task_loss"]
    whole = expected(0, slice(3)) + expected(0, slice(3, 5)) + expected(1, slice(4))
    np.testing.assert_allclose(found.numerator, whole, rtol=1e-5)
    assert found.denominator == 3


def test_of_masked_tokens_and_next_sentences():
    """Without the rows that pad the table, whose logits are the lowest number."""
    task = make_task(dropout_rate=0.0, attention_dropout_rate=0.0)
    student, teacher = outputs_like(masked_lm_logits=(2, 3, 70), next_sentence_logits=(2, 1, 2))
    for outputs in (student, teacher):
        lowest = jnp.finfo(jnp.float32).min
        outputs.masked_lm_logits = outputs.masked_lm_logits.at[..., 64:].set(lowest)
    weights = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    batch: Any = {
        "masked_lm_weights": weights,
        "next_sentence_weights": np.ones((2, 1), np.float32),
    }
    found = task.distilled_losses(student, teacher, batch, 0.5)
    values = soft(student.masked_lm_logits[..., :64], teacher.masked_lm_logits[..., :64], 0.5)
    np.testing.assert_allclose(
        found["masked_lm_loss"].numerator, (values * weights).sum(), rtol=1e-5
    )
    values = soft(student.next_sentence_logits, teacher.next_sentence_logits, 0.5)
    np.testing.assert_allclose(found["next_sentence_loss"].numerator, values.sum(), rtol=1e-5)
    student.next_sentence_logits = None
    assert list(task.distilled_losses(student, teacher, batch, 0.5)) == ["masked_lm_loss"]


def test_the_gradient_is_the_difference_of_the_probabilities_times_the_temperature():
    logits, teacher = (jnp.asarray(draw(5, seed=seed)) for seed in (1, 2))
    gradient = jax.grad(lambda x: losses.divergence(x, teacher, 3.0))(logits)
    expected = 3.0 * (softmax(np.asarray(logits) / 3.0) - softmax(np.asarray(teacher) / 3.0))
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


# ------------------------------------------------------------------ both models


def labelled_batch(rows=4) -> Any:
    batch = make_batch(rows)
    names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
    labels = {"labels": np.arange(rows) % 3, "weights": np.ones(rows, np.float32)}
    return {name: batch[name] for name in names} | labels


def test_the_losses_are_weighted_and_the_parts_are_reported():
    student = Classification(model=STUDENT, labels=("a", "b", "c"))
    teacher = dataclasses.replace(student, model=TEACHER)
    task, batch = dataclasses.replace(student, taught=Taught(teacher, CONFIG)), labelled_batch()
    alone = student.make_model().apply({"params": random_params(student)}, batch)
    outputs = apply_both(task, alone, random_params(teacher), batch)
    sums = training_losses(task, outputs, batch)
    assert loss_names(sums) == ("weighted_task_loss", "weighted_task_distilled_loss")
    plain = student.losses(alone, batch)
    assert sums["task_loss"].numerator == plain["task_loss"].numerator
    assert sums["task_accuracy"] == plain["task_accuracy"]
    distilled = sums["task_distilled_loss"].numerator
    logits = outputs.student.logits, outputs.teacher.logits
    np.testing.assert_allclose(distilled, soft(*logits, 2.0).sum(), rtol=1e-5)
    for name, value in (
        ("task_loss", 0.75 * plain["task_loss"].numerator),
        ("task_distilled_loss", 0.25 * distilled),
    ):
        np.testing.assert_allclose(sums[f"weighted_{name}"].numerator, value, rtol=1e-6)
        assert sums[f"weighted_{name}"].denominator == plain["task_loss"].denominator
