"""Losses of classes: against torch, optax and closed forms; weights; what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.examples import TaggedExample, TextExample
from bert_jax.tasks import losses
from bert_jax.tasks.class_loss import ClassLoss, ClassLossConfig, balanced_weights
from tests.tasks.test_classification import make as make_classification

CLASSES, WEIGHTS = 4, (0.5, 2.0, 7.0, 1.0)
PAIRS = ((0.5, 2.0), (1.0, 7.0), (0.3, 1.0), (1.0, 1.0))


def make_case(*shape):
    rng = np.random.default_rng(1)
    logits = jnp.asarray(3 * rng.standard_normal((*shape, CLASSES)), jnp.float32)
    labels = rng.integers(0, CLASSES, shape, np.int32)
    return logits, labels, rng.integers(0, 2, shape).astype(np.float32)


def single(loss, logits, labels, weights):
    return loss.single("x", logits, labels, weights)["x_loss"]


def losses_of(loss, logits, labels):
    """The loss of each example by itself."""
    each = [single(loss, logits[i : i + 1], labels[i : i + 1], np.ones(1, np.float32))
            for i in range(len(labels))]  # fmt: skip
    assert {float(item.denominator) for item in each} == {1.0}
    return np.array([item.numerator for item in each])


def test_the_default_is_the_plain_loss_bit_for_bit():
    logits, labels, weights = make_case(5, 3)
    plain = losses.classify("x", logits, labels, weights)
    found = ClassLoss().single("x", logits, labels, weights)
    jax.tree.map(np.testing.assert_array_equal, found, plain)
    alike = ClassLoss(weights=(1.0,) * CLASSES).single("x", logits, labels, weights)
    jax.tree.map(np.testing.assert_array_equal, alike, plain)


def test_weights_and_smoothing_of_single_labels_agree_with_torch():
    torch = pytest.importorskip("torch")
    logits, labels, _ = make_case(20)
    theirs = torch.tensor(np.asarray(logits)), torch.tensor(labels, dtype=torch.int64)
    for weights, smoothing in (((), 0.2), (WEIGHTS, 0.0)):
        loss = torch.nn.CrossEntropyLoss(
            torch.tensor(weights) if weights else None, label_smoothing=smoothing, reduction="none"
        )
        found = losses_of(ClassLoss(weights, smoothing), logits, labels)
        np.testing.assert_allclose(found, loss(*theirs).numpy(), rtol=1e-5)


def test_with_smoothing_too_an_example_has_the_weight_of_its_label():
    logits, labels, _ = make_case(20)
    targets = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.2)
    expected = np.array(WEIGHTS)[labels] * optax.softmax_cross_entropy(logits, targets)
    found = losses_of(ClassLoss(WEIGHTS, 0.2), logits, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_focal_loss_of_single_labels_is_that_of_the_paper(gamma):
    logits, labels, _ = make_case(20)
    exp = np.exp(np.asarray(logits, np.float64))
    p = (exp / exp.sum(-1, keepdims=True))[np.arange(20), labels]
    expected = np.array(WEIGHTS)[labels] * (1 - p) ** gamma * -np.log(p)
    found = losses_of(ClassLoss(WEIGHTS, focal_gamma=gamma), logits, labels)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_binary_losses_agree_with_optax_and_torch():
    torch = pytest.importorskip("torch")
    logits, _, _ = make_case(6, 2)
    labels = np.random.default_rng(2).integers(0, 2, logits.shape).astype(np.float32)
    focal = optax.losses.sigmoid_focal_loss(logits, labels, gamma=1.5)
    found = ClassLoss(focal_gamma=1.5).several(logits, labels)
    np.testing.assert_allclose(found, focal.mean(-1), rtol=1e-5)
    smooth = optax.sigmoid_binary_cross_entropy(logits, 0.9 * labels + 0.05)
    found = ClassLoss(label_smoothing=0.1).several(logits, labels)
    np.testing.assert_allclose(found, smooth.mean(-1), rtol=1e-5)
    positive = torch.tensor([with_label for _, with_label in PAIRS])
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=positive, reduction="none")
    theirs = loss(torch.tensor(np.asarray(logits)), torch.tensor(labels)).mean(-1)
    only_positive = ClassLoss(tuple((1.0, with_label) for _, with_label in PAIRS))
    np.testing.assert_allclose(only_positive.several(logits, labels), theirs.numpy(), rtol=1e-5)
    plain = optax.sigmoid_binary_cross_entropy(logits, labels)
    table = np.array(PAIRS)[np.arange(CLASSES), labels.astype(int)]
    np.testing.assert_allclose(
        ClassLoss(PAIRS).several(logits, labels), (table * plain).mean(-1), rtol=1e-5
    )


def test_gradients_of_the_focal_loss_are_finite_for_any_logits():
    logits = jnp.array([[1e4, 0.0], [-1e4, 0.0], [0.0, 0.0]])
    labels = np.zeros(3, np.int32)
    loss = ClassLoss(focal_gamma=0.5)
    grads = jax.grad(lambda x: single(loss, x, labels, np.ones(3, np.float32)).numerator)(logits)
    assert jnp.isfinite(grads).all() and (np.asarray(grads)[1:, 0] < 0).all()
    several = jax.grad(lambda x: loss.several(x, np.ones((3, 2), np.float32)).sum())(logits)
    assert jnp.isfinite(several).all()


# ------------------------------------------------------------------ weighting=logits


def test_auto_adds_the_logarithms_of_the_shares_to_logits_in_training():
    """Equation 10 of Menon et al. 2021, with tau=1; and the same for each of several labels."""
    counts = np.array([90, 6, 1, 4])
    logits, labels, _ = make_case(20)
    loss = ClassLoss(tuple(balanced_weights(counts)), adjusts_logits=True)
    terms = np.exp(np.asarray(logits, np.float64)) * counts / counts.sum()
    expected = -np.log(terms[np.arange(20), labels] / terms.sum(1))
    found = losses_of(loss, logits, labels)
    # A loss near 0 is a difference of numbers near 10.
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)

    total, gold = 101, np.eye(CLASSES)[labels]
    pairs = tuple(tuple(balanced_weights([total - count, count])) for count in counts)
    found = ClassLoss(pairs, adjusts_logits=True).several(logits, jnp.asarray(gold))
    odds = np.exp(np.asarray(logits, np.float64)) * counts / (total - counts)
    expected = -np.where(gold, np.log(odds / (1 + odds)), -np.log1p(odds)).mean(1)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_adjusted_logits_leave_the_scores_as_they_are():
    """Only the loss is adjusted, so that decisions are those of an exported model."""
    logits, labels, weights = make_case(5, 3)
    plain = losses.classify("x", logits, labels, weights)
    found = ClassLoss(WEIGHTS, adjusts_logits=True).single("x", logits, labels, weights)
    changed = {name for name in plain if plain[name].numerator != found[name].numerator}
    assert changed == {"x_loss"}


# ------------------------------------------------------------------ class_weights


def texts(*labels):
    return [TextExample("x", str(n), "text", labels=found) for n, found in enumerate(labels)]


def test_auto_weighs_classes_by_inverse_frequency():
    counts = [90, 6, 0, 4]
    weights = balanced_weights(counts)
    assert weights == pytest.approx([100 / 270, 100 / 18, 1.0, 100 / 12])
    assert np.dot(counts, weights) / 100 == pytest.approx(1)
    sklearn = pytest.importorskip("sklearn.utils.class_weight")
    gold = np.repeat(range(4), counts)
    theirs = sklearn.compute_class_weight("balanced", classes=np.unique(gold), y=gold)
    assert np.delete(weights, 2) == pytest.approx(theirs)


def test_auto_counts_single_labels_several_labels_and_tags():
    examples = texts(("a",), ("b",), ("b",), ("b",))
    data = make_classification()
    data = dataclasses.replace(data, labels=("a", "b"))
    assert data.balanced_weights(examples) == pytest.approx({"a": 2, "b": 2 / 3})
    data = make_classification("multi", ("f1",))
    data = dataclasses.replace(data, labels=("a", "b"))
    found = data.balanced_weights(texts(("a", "b"), ("b",), (), ("b",)))
    assert found == {"a": pytest.approx([4 / 6, 2]), "b": pytest.approx([2, 4 / 6])}
    tagging = default_config("tagging").task
    tagging = dataclasses.replace(tagging, labels=("O", "B-A", "I-A"))
    words = TaggedExample("x", "0", tuple("abcd"), ("O", "O", "O", "B-A"))
    assert tagging.balanced_weights([words]) == pytest.approx({"O": 2 / 3, "B-A": 2, "I-A": 1})


def test_given_weights_are_those_of_the_labels_by_number():
    head = ClassLossConfig(class_weights='{"b": 3, "a": 0.5}')
    assert ClassLoss.make(head, ("a", "b", "c")).weights == (0.5, 3, 1.0)
    head = ClassLossConfig(class_weights='{"b": (0.5, 3), "a": 2}')
    assert ClassLoss.make(head, ("a", "b"), several=True).weights == ((1.0, 2), (0.5, 3))
    assert ClassLoss.make(ClassLossConfig(class_weights="{1: 3}"), ("0", "1")).weights == (1.0, 3)


MALFORMED = (
    "automatic",
    "{}",
    "{'a': 0}",
    "{'a': 1e999}",
    "{'a': True}",
    "{'a'",
    "{'a': (1, 2, 3)}",
)


@pytest.mark.parametrize(
    "fields, message",
    [
        *(({"class_weights": text}, "is neither none nor auto, nor has") for text in MALFORMED),
        ({"class_weights": "{'b': (1, 3)}"}, "'b' has two weights, which are for several labels"),
        ({"class_weights": "{'c': 3}"}, "class_weights: 'c' is none of the labels a, b"),
        ({"weighting": "logits"}, "weighting=logits needs class_weights"),
        ({"focal_gamma": 2.0, "label_smoothing": 0.1}, "focal_gamma=2.0 and label_smoothing=0.1"),
    ],
)
def test_settings_without_meaning_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ClassLoss.make(ClassLossConfig(**fields), ("a", "b"))
