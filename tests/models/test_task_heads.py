"""What is at padding has no effect on heads, and their dtypes; numbers are in tests/parity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import crf
from bert_jax.models.task_heads import (
    MultipleChoiceModel,
    SpanModel,
    TaggingModel,
    of_words,
)
from bert_jax.tasks.tagging import Tagging
from tests.models.small import assert_close, cross_entropy, make_batch, make_config, random_params

NUM_CLASSES, SEQ = 3, 24


@pytest.fixture
def tagged_batch():
    """A word at every other token."""
    batch, place = make_batch(make_config(), seq=SEQ), 1 + 2 * np.arange(10)
    is_word = place < batch["example_ids"].sum(1)[:, None] - 1
    tags = np.random.default_rng(1).integers(0, NUM_CLASSES, is_word.shape)
    return batch | {
        "word_positions": np.where(is_word, place, 0).astype(np.int32),
        "is_word": is_word,
        "labels": np.where(is_word, tags, 0).astype(np.int32),
        "weights": is_word.astype(np.float32),
    }


def garbage(batch, rng):
    """The batch with other ids at padding and other words where there is none."""
    is_text = batch["example_ids"] > 0
    changed = dict(batch)
    for name, most in ("input_ids", 97), ("token_type_ids", 2), ("position_ids", 40):
        changed[name] = np.where(is_text, batch[name], rng.integers(0, most, is_text.shape))
    if "is_word" in batch:
        is_word = batch["is_word"]
        for name, most in ("word_positions", SEQ), ("labels", NUM_CLASSES):
            changed[name] = np.where(is_word, batch[name], rng.integers(0, most, is_word.shape))
    return {name: np.asarray(array, batch[name].dtype) for name, array in changed.items()}


def pad(batch, by):
    """The batch with longer rows; the shapes of what is of rows stay."""
    return {
        name: np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, by)])
        if array.shape[-1] == SEQ or name in ("word_positions", "is_word", "labels", "weights")
        else array
        for name, array in batch.items()
    }


@pytest.mark.parametrize("head", ["linear", "bilstm_crf"])
def test_padding_does_not_leak_into_tags(tagged_batch, head):
    """In the BiLSTM neither from the front nor from behind, and into no loss and no gradient."""
    head = Tagging(head=head, lstm_size=8, lstm_layers=2)
    model, batch = TaggingModel(make_config(num_layers=1), NUM_CLASSES, head), tagged_batch
    params, is_word = random_params(model, batch, spread=0.2), batch["is_word"]

    def loss_of(params, batch):
        found, is_word = model.apply({"params": params}, batch), jnp.asarray(batch["is_word"])
        if found.crf is None:
            loss = cross_entropy(found.logits, batch["labels"], batch["weights"])
            return loss, (found.logits.argmax(-1), found.logits)
        labels = jnp.asarray(batch["labels"])
        likelihood = crf.log_likelihood(found.crf, found.logits, labels, is_word)
        tags = crf.decode(found.crf, found.logits, is_word)
        return -likelihood.sum() / is_word.sum(), (tags, found.logits)

    run = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
    (loss, answers), grads = run(params, batch)
    (other_loss, others), other_grads = run(params, garbage(batch, np.random.default_rng(2)))
    np.testing.assert_array_equal(other_loss, loss)
    for values, other in zip(answers, others, strict=True):
        np.testing.assert_array_equal(other[is_word], values[is_word])
    # Gradients of embeddings: zeros are added elsewhere, and sums come in another order.
    assert_close(other_grads, grads, atol=1e-7)

    longer_loss, (longer, _) = jax.jit(loss_of)(params, pad(batch, 8))
    np.testing.assert_allclose(longer_loss, loss, rtol=1e-6)
    np.testing.assert_array_equal(longer[:, : is_word.shape[1]][is_word], answers[0][is_word])


@pytest.mark.parametrize("kind", [SpanModel, MultipleChoiceModel])
def test_padding_does_not_leak_into_answers(kind):
    config = make_config(num_layers=1)
    batch = make_batch(config, seq=SEQ, batch=4)
    model = kind(config)
    longer, other = pad(batch, 8), garbage(batch, np.random.default_rng(2))
    labels, weights = np.array([1, 2, 0, 1]), np.array([1, 1, 1, 0], np.float32)
    if kind is MultipleChoiceModel:
        labels, weights = np.array([1, 0]), weights[2:]
        batch, longer, other = (
            {name: array.reshape(2, 2, -1) for name, array in b.items()}
            for b in (batch, longer, other)
        )
    params = random_params(model, batch, spread=0.2)

    @jax.jit
    def loss_of(batch):
        found = model.apply({"params": params}, batch).replace(reading=None)
        return sum(cross_entropy(logits, labels, weights) for logits in jax.tree.leaves(found))

    loss, same, padded = map(loss_of, (batch, other, longer))
    assert loss > 0.1 and same == loss
    np.testing.assert_allclose(padded, loss, rtol=1e-6)


@pytest.mark.parametrize("how", ["mean", "max"])
def test_words_are_aggregated_as_by_the_token_classification_pipeline(how):
    """Its strategies "average" and "max": a label and a score for each word, by plain loops."""
    rng = np.random.default_rng(0)
    logits = (3 * rng.standard_normal((2, SEQ, NUM_CLASSES))).astype(np.float32)
    sizes = np.array([[1, 3, 2, 5, 1, 0], [4, 4, 1, 0, 0, 0]], np.int32)
    starts = np.where(sizes > 0, 1 + np.cumsum(sizes, axis=1) - sizes, 0).astype(np.int32)
    found = np.asarray(jax.nn.softmax(of_words(how, logits, starts, sizes)))
    for row, word in zip(*np.nonzero(sizes), strict=True):
        begin = starts[row, word]
        pieces = np.exp(logits[row, begin : begin + sizes[row, word]].astype(np.float64))
        pieces /= pieces.sum(-1, keepdims=True)
        if how == "mean":
            scores = pieces.mean(axis=0)
        else:
            scores = pieces[pieces.max(axis=1).argmax()]
        np.testing.assert_allclose(found[row, word], scores, rtol=2e-5, atol=1e-6)
    gradient = jax.grad(lambda x: of_words(how, x, starts, sizes)[:, :, 0].sum())(logits * 100)
    assert np.isfinite(gradient).all()
