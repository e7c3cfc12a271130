"""The choice of the next word, against enumeration of the distribution by hand."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.inference.generation import Sampling, choose, restrict

PROBS = np.array([0.05, 0.4, 0.15, 0.3, 0.1])


def expected(probs, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that is sampled, one word after the other."""
    probs = np.asarray(probs, np.float64) ** (1 / temperature)
    probs /= probs.sum()
    order = sorted(range(len(probs)), key=lambda word: -probs[word])  # stable
    if top_k:
        order = order[:top_k]
    kept, total = [], 0.0
    for word in order:
        if total < top_p * sum(probs[order]) - 1e-9:
            kept.append(word)
        total += probs[word]
    result = np.zeros(len(probs))
    result[kept] = probs[kept] / sum(probs[kept])
    return result


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 1},
        {"top_k": 3},
        {"top_p": 0.69},
        {"top_p": 1e-3},
        {"top_k": 3, "top_p": 0.5},
        {"temperature": 0.7, "top_k": 4, "top_p": 0.8},
    ],
    ids=str,
)
def test_the_distribution_is_the_one_computed_by_hand(settings):
    rows = np.stack([PROBS, PROBS[::-1]])
    logits = jnp.log(jnp.asarray(rows, jnp.float32)) + 3.0  # any constant
    found = jax.nn.softmax(restrict(Sampling(**settings), logits))
    for row, probs in zip(found, rows, strict=True):
        np.testing.assert_allclose(row, expected(probs, **settings), atol=1e-6)


def test_of_equal_words_the_first_ones_are_kept():
    kept = np.isfinite(restrict(Sampling(top_k=2), jnp.zeros((1, 4))))
    np.testing.assert_array_equal(kept, [[True, True, False, False]])


def test_a_word_without_probability_is_never_chosen():
    logits = jnp.array([[-jnp.inf, 1.0, -jnp.inf, 2.0]])
    probs = jax.nn.softmax(restrict(Sampling(top_k=3, top_p=0.999), logits))
    np.testing.assert_allclose(probs, [[0, 1 / (1 + np.e), 0, np.e / (1 + np.e)]], atol=1e-6)


def test_words_are_drawn_with_their_probabilities():
    """20,000 draws: each share is within four standard deviations of its probability."""
    settings, count = {"temperature": 0.8, "top_k": 4}, 20_000
    logits = jnp.log(jnp.asarray(PROBS, jnp.float32))
    keys = jax.random.split(jax.random.key(0), count)
    logits = jnp.broadcast_to(logits, (count, len(PROBS)))
    drawn = jax.jit(lambda k, x: choose(Sampling(**settings), k, x))(keys, logits)
    probs = expected(PROBS, **settings)
    shares = np.bincount(drawn, minlength=len(PROBS)) / count
    assert (np.abs(shares - probs) <= 4 * np.sqrt(probs * (1 - probs) / count)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": float("nan")}, "temperature=nan must be above 0"),
        ({"top_k": -1}, "top_k=-1 must be at least 1, or 0 for all words."),
        ({"top_p": 1.5}, "top_p=1.5 must be above 0, and at most 1 for all words."),
        ({"greedy": True, "top_k": 3}, "greedy takes the most probable word: leave out"),
    ],
)
def test_what_is_no_choice_is_refused(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Sampling(**settings)
