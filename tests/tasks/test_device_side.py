"""Labelled tasks on the devices: answers, and what the heads' parameters are sharded by."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import crf
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.tagging import Tagging
from bert_jax.tasks.task import add_answers, in_order
from bert_jax.training.state import init_params
from tests.tiny import make_batch, make_model

TAGS = 5


def make_tagging(head: str) -> Tagging:
    return Tagging(model=make_model(num_layers=1), labels=tuple("ABCDE"), head=head)


@pytest.fixture(scope="module")
def tagged_batch() -> dict[str, np.ndarray]:
    """Three sentences of words of one token; the second has no words."""
    batch = make_batch(3)
    is_token = batch["example_ids"] > 0
    rng = np.random.default_rng(1)
    is_word = is_token.copy()
    is_word[1] = False
    return batch | {
        "word_positions": batch["position_ids"],
        "is_word": is_word,
        "labels": np.where(is_word, rng.integers(0, TAGS, is_word.shape), 0).astype(np.int32),
        "weights": is_word.astype(np.float32),
    }


def apply(task, batch, seed: int = 0):
    """Returns the outputs of a task's model with random parameters of standard deviation 0.5."""
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    params = jax.tree.unflatten(
        tree, [rng.normal(0, 0.5, leaf.shape).astype(np.float32) for leaf in leaves]
    )
    model = functools.partial(task.make_model().apply, deterministic=True)
    return jax.jit(model)({"params": params}, batch)


def test_the_loss_of_a_crf_is_the_likelihood_of_rows_divided_by_words(tagged_batch):
    """A row of padding has no weight; a row that is predicted in part counts as a whole."""
    task, batch = make_tagging("crf"), dict(tagged_batch)
    batch["weights"] = batch["weights"].copy()
    batch["weights"][2, 1:] = 0
    outputs = apply(task, batch)
    likelihood = crf.log_likelihood(
        outputs.crf, outputs.logits, jnp.asarray(batch["labels"]), jnp.asarray(batch["is_word"])
    )
    loss = task.losses(outputs, batch)["task_loss"]
    np.testing.assert_allclose(loss.numerator, -(likelihood[0] + likelihood[2]), rtol=1e-6)
    words = batch["is_word"][[0, 2]].sum()
    assert loss.denominator == words
    assert batch["weights"].sum() < words


def test_answers_of_taggers(tagged_batch):
    """A CRF gives the best path's marginals."""
    outputs = apply(task := make_tagging("crf"), tagged_batch)
    answers = task.answers(outputs, tagged_batch)
    is_word = jnp.asarray(tagged_batch["is_word"])
    best = crf.decode(outputs.crf, outputs.logits, is_word)
    np.testing.assert_array_equal(answers["tags"], best)
    of_all = np.asarray(crf.marginals(outputs.crf, outputs.logits, is_word))
    for row, word in np.argwhere(is_word):
        assert answers["probabilities"][row, word] == of_all[row, word, best[row, word]]


def test_a_choice_that_is_all_padding_has_no_probability():
    task, one = MultipleChoice(model=make_model(num_layers=1)), make_batch(2)
    batch = {name: np.stack([array, array[::-1]], axis=1) for name, array in one.items()}
    batch["example_ids"] = batch["example_ids"].copy()
    batch["example_ids"][1, 1] = 0
    batch |= {"labels": np.array([1, 0], np.int32), "weights": np.ones(2, np.float32)}
    outputs = apply(task, batch)
    probabilities = np.asarray(task.answers(outputs, batch)["probabilities"])
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-6)
    assert probabilities[1, 1] == 0 and (probabilities[0] > 0).all()
    loss = task.losses(outputs, batch)["task_loss"]
    np.testing.assert_allclose(loss.numerator, -np.log(probabilities[0, 1]), rtol=1e-5)


def test_answers_of_batches_in_any_order_are_those_of_the_rows_in_order():
    found = {}
    add_answers(found, np.array([2, 0]), {"x": np.array([[12], [10]]), "y": ["c", "a"]})
    add_answers(found, np.array([1, -1]), {"x": np.array([[11], [99]]), "y": ["b", "?"]})
    assert in_order(found) == [{"x": 10, "y": "a"}, {"x": 11, "y": "b"}, {"x": 12, "y": "c"}]
