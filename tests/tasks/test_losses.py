"""Losses against float64, and sums against their parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.heads import PreTrainingOutputs
from bert_jax.models.task_heads import ClassificationOutputs, SpanOutputs
from bert_jax.tasks import losses
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.span import Span
from tests.tiny import make_model

NONE: Any = None


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def make_case(*shape, classes=50, seed=0):
    """Returns logits, labels, and weights of 0 and 1."""
    rng = np.random.default_rng(seed)
    logits = (5 * rng.standard_normal((*shape, classes))).astype(np.float32)
    labels = rng.integers(0, classes, shape, np.int32)
    return logits, labels, rng.integers(0, 2, shape).astype(np.float32)


def classify(logits, labels, weights):
    return losses.classify("x", jnp.asarray(logits), labels, weights)


@pytest.mark.parametrize("shape", [(5,), (4, 6)])
def test_a_classification_is_the_weighted_sum_of_cross_entropies(shape):
    logits, labels, weights = make_case(*shape)
    sums = classify(logits, labels, weights)
    log_probs = np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    hits = logits.argmax(-1) == labels
    assert sums["x_loss"].numerator == pytest.approx(-(log_probs * weights).sum(), rel=1e-6)
    assert sums["x_accuracy"].numerator == (hits * weights).sum()
    assert losses.loss_names(sums) == ("x_loss",)
    for total in sums.values():
        assert total.denominator == weights.sum()
        assert total.numerator.dtype == total.denominator.dtype == jnp.float32


def test_the_gradient_is_probability_minus_one_hot_and_none_for_accuracy():
    logits, labels, weights = make_case(4, 6)

    def gradient(name):
        value = lambda x: classify(x, labels, weights)[name].numerator / 7  # noqa: E731
        return jax.grad(value)(jnp.asarray(logits))

    expected = (np.exp(log_softmax(logits)) - np.eye(50)[labels]) * weights[..., None] / 7
    np.testing.assert_allclose(gradient("x_loss"), expected, atol=1e-7)
    assert not gradient("x_accuracy").any()


def test_cross_entropy_of_huge_logits_is_exact():
    lowest = np.finfo(np.float32).min
    logits = jnp.array([[1e4, 1e4 - 1, lowest], [-1e4, 0.0, lowest], [1e30, 0.0, lowest]])
    labels = jnp.array([1, 0, 1])
    (values, hits), gradient = jax.vjp(lambda x: losses.cross_entropy(x, labels), logits)
    np.testing.assert_allclose(values, [1 + np.log1p(np.exp(-1)), 1e4, 1e30], rtol=1e-6)
    np.testing.assert_array_equal(hits, [0, 0, 0])
    grads = gradient((jnp.ones(3), jnp.zeros(3)))[0]
    assert jnp.isfinite(grads).all()
    np.testing.assert_array_equal(grads[:, 2], [0, 0, 0])


@pytest.mark.parametrize(
    "logits, label, hit",
    [
        ((0, 2, 1), 1, 1),
        ((0, 2, 1), 2, 0),
        ((2, 2, 1), 0, 1),  # a tie is a hit for each of those that share the largest logit
        ((2, 2, 1), 1, 1),
        ((2, 2, 1), 2, 0),
    ],
)
def test_a_hit_is_a_label_that_no_other_class_beats(logits, label, hit):
    assert losses.cross_entropy(jnp.array(logits, jnp.float32), jnp.int32(label))[1] == hit


def test_the_mlm_loss_and_its_bits_per_character_of_the_masked_tokens():
    logits, labels, weights = make_case(4, 6)
    characters = np.arange(50) % 7
    task = Pretraining(model=make_model(), id_characters=tuple(characters.tolist()))
    outputs = PreTrainingOutputs(jnp.asarray(logits), None, NONE)
    sums = task.losses(outputs, {"masked_lm_ids": labels, "masked_lm_weights": weights})
    log_probs = np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    loss, found = sums["masked_lm_loss"], sums["masked_lm_bits_per_character"]
    assert loss.numerator == pytest.approx(-(log_probs * weights).sum(), rel=1e-6)
    assert loss.denominator == weights.sum()
    assert found.numerator == pytest.approx(float(loss.numerator) / np.log(2), rel=1e-6)
    assert found.denominator == (characters[labels] * weights).sum()
    assert losses.loss_names(sums) == ("masked_lm_loss",)


def loss_of(kind, logits, labels, weights):
    task = Classification(model=make_model(), problem_type=kind)
    batch = {"labels": labels, "weights": np.array(weights, np.float32)}
    outputs = ClassificationOutputs(jnp.asarray(logits), NONE)
    np.testing.assert_array_equal(task.answers(outputs, NONE)["logits"], logits)
    return task.losses(outputs, batch)["task_loss"]


def test_several_labels_have_binary_cross_entropies_also_of_huge_logits():
    logits = np.array([[0.5, -2.0, 90.0], [-90.0, 1e4, 0.0], [3.0, 3.0, 3.0]], np.float32)
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 1]], np.float32)
    loss = loss_of("multi", logits, labels, [1, 0.5, 0])
    first = -np.log([1 / (1 + np.exp(-0.5)), 1 - 1 / (1 + np.exp(2.0)), 1.0]).mean()
    second = (90 + 1e4 + np.log(2)) / 3
    assert loss.numerator == pytest.approx(first + second / 2, rel=1e-6)
    assert loss.denominator == 1.5


def test_a_number_has_the_squared_error():
    logits = np.array([[1.0], [-2.0], [7.0]], np.float32)
    loss = loss_of("regression", logits, np.array([0.5, 1.0, 0], np.float32), [1, 1, 0])
    assert (loss.numerator, loss.denominator) == (0.25 + 9, 2)


def test_a_span_is_the_mean_of_start_and_end_and_right_if_both_are():
    start_logits, end_logits = make_case(2, 4, classes=9)[0]
    starts, ends = start_logits.argmax(-1), end_logits.argmax(-1)
    starts[1] = (starts[1] + 1) % 9
    ends[2] = (ends[2] + 1) % 9
    weights = np.array([1, 1, 1, 0], np.float32)
    batch = {"start_positions": starts, "end_positions": ends, "weights": weights}
    outputs = SpanOutputs(jnp.asarray(start_logits), jnp.asarray(end_logits), NONE)
    sums = Span(model=make_model()).losses(outputs, batch)
    row = np.arange(4)
    expected = -log_softmax(start_logits)[row, starts] - log_softmax(end_logits)[row, ends]
    assert sums["task_loss"].numerator == pytest.approx(expected[:3].sum() / 2, rel=1e-6)
    assert sums["task_accuracy"].numerator == 1
    assert sums["task_loss"].denominator == sums["task_accuracy"].denominator == 3
