"""The sampled softmax: its samples against enumeration, its loss against numpy and a limit."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.tasks.bidirectional_lm.sampled_softmax import (
    draw_log_uniform,
    log_uniform_probabilities,
    sample_words,
    sampled_cross_entropy,
)


def probabilities(vocab_size: int) -> np.ndarray:
    """float64[vocab], in closed form."""
    return np.array([math.log((k + 2) / (k + 1)) for k in range(vocab_size)]) / math.log(
        vocab_size + 1
    )


def test_words_are_drawn_log_uniformly():
    size, count = 50, 400_000
    expected = probabilities(size)
    assert expected.sum() == pytest.approx(1)
    found = log_uniform_probabilities(jnp.arange(size), size)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    draw = jax.jit(draw_log_uniform, static_argnums=(1, 2))
    drawn = np.bincount(draw(jax.random.key(0), count, size), minlength=size)
    assert drawn.size == size
    deviations = (drawn - count * expected) / np.sqrt(count * expected * (1 - expected))
    assert np.abs(deviations).max() < 4
    assert (deviations**2).sum() < size + 4 * (2 * size) ** 0.5  # chi-squared


def test_the_rarest_words_of_a_large_vocabulary_are_all_drawn():
    """With 23 random bits only some of them can be: a step of u is more than one word there."""
    size = 3_000_000
    ids = draw_log_uniform(jax.random.key(0), 1 << 20, size)
    last = np.asarray(ids[ids > size * 0.9])
    assert len(last) > 5000
    parities = np.bincount(last % 4, minlength=4) / len(last)
    np.testing.assert_allclose(parities, 0.25, atol=0.03)
    assert 0 <= int(ids.min()) and int(ids.max()) < size


def draw_one_by_one(key, num_samples: int, size: int) -> tuple[list[int], int]:
    """The sample of `sample_words` from the same draws, by a loop over them."""
    found, tries = [], 0
    for number in itertools.count():
        chunk = draw_log_uniform(jax.random.fold_in(key, number), 2 * num_samples, size)
        for word in np.asarray(chunk).tolist():
            tries += 1
            if word not in found:
                found.append(word)
            if len(found) == num_samples:
                return found, tries
    raise AssertionError


@pytest.mark.parametrize("num_samples, size", [(1, 2), (5, 100), (30, 32), (64, 1000)])
def test_a_sample_is_that_of_a_loop_over_the_draws(num_samples, size):
    function = jax.jit(sample_words, static_argnums=(1, 2))
    for seed in range(5):
        sample = function(jax.random.key(seed), num_samples, size)
        expected, tries = draw_one_by_one(jax.random.key(seed), num_samples, size)
        assert sample.ids.tolist() == expected
        assert int(sample.num_tries) == tries


cross_entropy = jax.jit(sampled_cross_entropy, static_argnums=5)


def random_problem(size: int = 30, features: int = 6, positions: int = 8):
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(2, positions, features)).astype(np.float32),
        rng.integers(0, size, (2, positions)).astype(np.int32),
        rng.normal(size=(size, features)).astype(np.float32),
        rng.normal(size=size).astype(np.float32),
    )


def test_the_loss_is_that_of_numpy_for_the_same_sample():
    """A loop over positions and words, in float64; some labels are in the sample."""
    size = 30
    features, labels, table, bias = random_problem(size)
    sample = sample_words(jax.random.key(0), 12, size)
    assert np.isin(labels, sample.ids).any() and not np.isin(labels, sample.ids).all()
    found = cross_entropy(features, labels, table, bias, sample, size)
    p, tries = probabilities(size), int(sample.num_tries)

    def logit(row, place, word):
        expected_count = 1 - (1 - p[word]) ** tries
        return (
            float(np.dot(features[row, place].astype(np.float64), table[word]))
            + bias[word]
            - math.log(expected_count)
        )

    for row, place in itertools.product(range(2), range(8)):
        label = int(labels[row, place])
        words = [label, *(word for word in sample.ids.tolist() if word != label)]
        logits = [logit(row, place, word) for word in words]
        expected = math.log(sum(map(math.exp, logits))) - logits[0]
        assert float(found[row, place]) == pytest.approx(expected, abs=1e-5)
