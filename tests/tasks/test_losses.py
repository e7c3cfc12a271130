"""Losses against float64, and sums against their parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.tasks import losses


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    logits = (5 * rng.standard_normal((4, 6, 50))).astype(np.float32)
    batch = {
        "masked_lm_ids": rng.integers(0, 50, (4, 6), np.int32),
        "masked_lm_weights": rng.integers(0, 2, (4, 6)).astype(np.float32),
    }
    return logits, batch


def test_masked_lm_sums_over_the_predictions_in_use(case):
    logits, batch = case
    sums = losses.masked_lm(jnp.asarray(logits), batch)
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    log_probs = np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    hits = logits.argmax(-1) == labels
    assert sums["masked_lm_loss"].numerator == pytest.approx(-(log_probs * weights).sum(), rel=1e-6)
    assert sums["masked_lm_accuracy"].numerator == (hits * weights).sum()
    for total in sums.values():
        assert total.denominator == weights.sum()
        assert total.numerator.dtype == total.denominator.dtype == jnp.float32


def test_bits_per_character_are_the_loss_over_the_characters_of_the_masked_tokens(case):
    logits, batch = case
    characters = np.arange(50) % 7
    sums = losses.masked_lm(jnp.asarray(logits), batch)
    bits = losses.masked_lm_bits(sums, batch, jnp.asarray(characters))
    found = bits["masked_lm_bits_per_character"]
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    log_probs = np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    assert found.numerator == pytest.approx(-(log_probs * weights).sum() / np.log(2), rel=1e-6)
    assert found.denominator == (characters[labels] * weights).sum()


def test_next_sentence_weights_leave_out_rows_of_padding():
    logits = jnp.array([[[2.0, 0.0]], [[0.0, 1.0]], [[9.0, 0.0]]])
    batch = {
        "next_sentence_labels": np.array([[0], [0], [1]], np.int32),
        "next_sentence_weights": np.array([[1], [1], [0]], np.float32),
    }
    sums = losses.next_sentence(logits, batch)
    expected = np.log1p(np.exp(-2.0)) + np.log1p(np.exp(1.0))
    assert sums["next_sentence_loss"].numerator == pytest.approx(expected, rel=1e-6)
    assert sums["next_sentence_accuracy"].numerator == 1
    assert sums["next_sentence_loss"].denominator == 2


def test_parts_of_a_batch_add_up(case):
    logits, batch = case
    whole = losses.masked_lm(jnp.asarray(logits), batch)
    parts = [
        losses.masked_lm(
            jnp.asarray(logits[rows]), {name: array[rows] for name, array in batch.items()}
        )
        for rows in (slice(0, 1), slice(1, 4))
    ]
    total = jax.tree.map(jnp.add, *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), total, whole)


def test_the_gradient_is_probability_minus_one_hot(case):
    logits, batch = case
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    grads = jax.grad(
        lambda x: losses.masked_lm(x, batch)["masked_lm_loss"].numerator / 7,
    )(jnp.asarray(logits))
    expected = (np.exp(log_softmax(logits)) - np.eye(50)[labels]) * weights[..., None] / 7
    np.testing.assert_allclose(grads, expected, atol=1e-7)


def test_accuracy_has_no_gradient(case):
    logits, batch = case
    grads = jax.grad(lambda x: losses.masked_lm(x, batch)["masked_lm_accuracy"].numerator)(
        jnp.asarray(logits)
    )
    assert not grads.any()


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


def test_slots_of_weight_0_count_for_nothing(case):
    logits, batch = case
    is_left_over = batch["masked_lm_weights"] == 0
    labels = np.where(is_left_over, 0, batch["masked_lm_ids"])
    other = np.where(is_left_over[..., None], 50 - logits, logits)
    sums = losses.masked_lm(jnp.asarray(logits), batch)
    changed = losses.masked_lm(jnp.asarray(other), batch | {"masked_lm_ids": labels})
    jax.tree.map(np.testing.assert_array_equal, changed, sums)


# ------------------------------------------------------------------ fine-tuning


def test_classification_of_rows_or_of_words_is_the_mean_over_weights():
    rng = np.random.default_rng(1)
    for shape in (5,), (4, 7):
        logits = rng.normal(0, 3, (*shape, 6)).astype(np.float32)
        labels = rng.integers(0, 6, shape, np.int32)
        weights = rng.integers(0, 2, shape).astype(np.float32)
        sums = losses.classification(logits, {"labels": labels, "weights": weights})
        log_probs = np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
        hits = logits.argmax(-1) == labels
        assert sums["task_loss"].numerator == pytest.approx(-(log_probs * weights).sum(), rel=1e-6)
        assert sums["task_accuracy"].numerator == (hits * weights).sum()
        assert sums["task_loss"].denominator == weights.sum()


def test_multi_label_is_binary_cross_entropy_also_of_huge_logits():
    logits = np.array([[0.5, -2.0, 90.0], [-90.0, 1e4, 0.0], [3.0, 3.0, 3.0]], np.float32)
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 1]], np.float32)
    weights = np.array([1, 1, 0], np.float32)
    loss = losses.multi_label(jnp.asarray(logits), {"labels": labels, "weights": weights})
    first = -np.log([1 / (1 + np.exp(-0.5)), 1 - 1 / (1 + np.exp(2.0)), 1.0]).mean()
    second = (90 + 1e4 + np.log(2)) / 3
    assert loss["task_loss"].numerator == pytest.approx(first + second, rel=1e-6)
    assert loss["task_loss"].denominator == 2


def test_regression_is_the_squared_error():
    values, labels = np.array([1.0, -2.0, 7.0], np.float32), np.array([0.5, 1.0, 0], np.float32)
    weights = np.array([1, 1, 0], np.float32)
    loss = losses.regression(values, {"labels": labels, "weights": weights})["task_loss"]
    assert (loss.numerator, loss.denominator) == (0.25 + 9, 2)


def test_a_span_is_the_mean_of_start_and_end_and_right_if_both_are():
    rng = np.random.default_rng(1)
    start_logits, end_logits = rng.normal(0, 3, (2, 4, 9)).astype(np.float32)
    starts, ends = start_logits.argmax(-1), end_logits.argmax(-1)
    starts[1] = (starts[1] + 1) % 9
    ends[2] = (ends[2] + 1) % 9
    weights = np.array([1, 1, 1, 0], np.float32)
    batch = {"start_positions": starts, "end_positions": ends, "weights": weights}
    sums = losses.span(jnp.asarray(start_logits), jnp.asarray(end_logits), batch)
    row = np.arange(4)
    expected = -log_softmax(start_logits)[row, starts] - log_softmax(end_logits)[row, ends]
    assert sums["task_loss"].numerator == pytest.approx(expected[:3].sum() / 2, rel=1e-6)
    assert sums["task_accuracy"].numerator == 1
    assert sums["task_loss"].denominator == sums["task_accuracy"].denominator == 3
