"""The loss of a copy head without the probabilities of all words, against one with them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.copy_head import Copies
from bert_jax.tasks.losses import cross_entropy
from bert_jax.tasks.pretraining.copying import cross_entropy_of_copies
from bert_jax.training.state import init_params
from tests import tiny

ROWS, SLOTS, SEQ, WORDS = 4, 7, 12, 9  # few words: labels and copies often meet


def make_case() -> tuple[jax.Array, Any, jax.Array]:
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.full(SEQ, 0.3), (ROWS, SLOTS)).astype(np.float32)
    gate = rng.normal(0, 3, (ROWS, SLOTS)).astype(np.float32)
    attention[1], gate[1] = 0, -1e9  # nothing to copy
    ids = rng.integers(0, WORDS, (ROWS, SEQ), np.int32)
    logits = (3 * rng.standard_normal((ROWS, SLOTS, WORDS))).astype(np.float32)
    labels = rng.integers(0, WORDS, (ROWS, SLOTS), np.int32)
    logits, labels, *parts = map(jnp.asarray, (logits, labels, ids, attention, gate))
    return logits, Copies(*parts), labels


def mixture(logits, copies):
    """float[rows, slots, words]: p(word), by products with one-hot matrices."""
    gate = jax.nn.sigmoid(copies.gate)[..., None]
    copied = copies.attention @ jax.nn.one_hot(copies.ids, WORDS)
    return (1 - gate) * jax.nn.softmax(logits) + gate * copied


def test_loss_accuracy_and_gradient_are_those_of_the_full_mixture():
    logits, copies, labels = make_case()

    def of_mixture(logits, copies):
        probs = jnp.take_along_axis(mixture(logits, copies), labels[..., None], -1)[..., 0]
        return -jnp.log(probs)

    def of_label(logits, copies):
        return cross_entropy_of_copies(logits, copies, labels)[0]

    def gradient(losses):
        def total(attention, gate, logits):
            return losses(logits, Copies(copies.ids, attention, gate)).sum()

        return jax.grad(total, (0, 1, 2))(copies.attention, copies.gate, logits)

    losses, hits = cross_entropy_of_copies(logits, copies, labels)
    np.testing.assert_allclose(losses, of_mixture(logits, copies), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hits, mixture(logits, copies).argmax(-1) == labels)
    for found, expected in zip(gradient(of_label), gradient(of_mixture), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_without_anything_to_copy_loss_hits_and_gradient_are_those_of_the_softmax():
    logits, copies, labels = make_case()
    nothing = dataclasses.replace(
        copies, attention=0 * copies.attention, gate=jnp.full_like(copies.gate, -1e9)
    )
    logits = logits.at[0, :, 0].set(-200.0)  # a label that float32 gives no probability
    labels = labels.at[0].set(0)
    found = cross_entropy_of_copies(logits, nothing, labels)
    jax.tree.map(np.testing.assert_array_equal, found, cross_entropy(logits, labels))
    slope, alone = (
        jax.grad(lambda x, losses=losses: losses(x).sum())(logits)
        for losses in (
            lambda x: cross_entropy_of_copies(x, nothing, labels)[0],
            lambda x: cross_entropy(x, labels)[0],
        )
    )
    np.testing.assert_allclose(slope, alone, atol=1e-6)


def test_a_row_without_anything_to_copy_has_a_finite_gradient():
    task = tiny.make_task(
        next_sentence=False, copy_head=True, dropout_rate=0.0, attention_dropout_rate=0.0
    )
    task = dataclasses.replace(task, rule=None, mask_id=4)
    batch = tiny.make_batch(2, seed=1)
    batch["input_ids"][:] = 4  # [MASK]
    batch["example_ids"][1] = 0  # padding
    slots = np.array([[1, 2], [0, 0]], np.int32)
    batch: Any = batch | {"masked_lm_positions": slots, "masked_lm_ids": slots + 5}
    batch["masked_lm_weights"] = np.ones(slots.shape, np.float32)

    def loss(params):
        outputs: Any = task.make_model().apply({"params": params}, batch, deterministic=True)
        return task.losses(outputs, batch)["masked_lm_loss"].numerator

    params = init_params(task, jax.random.key(1))
    value, slope = jax.jit(jax.value_and_grad(loss))(params)
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slope["copy_head"]))
