"""Choices of layers against their definitions, and the order of floating-point sums."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.layer_choice import choose


@pytest.fixture
def states():
    """The embeddings and five layers, of very different magnitudes."""
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((2, 3, 8)) * 10.0**power).astype(np.float32)
        for power in (0, 3, -2, 1, 4, -1)
    ]


def test_single_layers_and_concatenations(states):
    for name, expected in {
        "last": states[5],
        "embeddings": states[0],
        "second_to_last": states[4],
        "concat_last_4": np.concatenate(states[2:6], -1),
        "all": np.stack(states, 1),
    }.items():
        for last_first in (False, True):
            found = choose(name, tuple(map(jnp.asarray, states)), last_first=last_first)
            np.testing.assert_array_equal(found, expected)


def test_sums_in_both_orders_to_the_last_bit(states):
    e, a, b, c, d, last = states
    for name, up, last_first in (
        ("sum_last_4", ((b + c) + d) + last, ((last + b) + c) + d),
        ("sum_all", (((a + b) + c) + d) + last, (((last + a) + b) + c) + d),
    ):
        np.testing.assert_array_equal(choose(name, states), up)
        np.testing.assert_array_equal(choose(name, states, last_first=True), last_first)
        assert (up != last_first).any()


def test_weighted_sums(states):
    """Of the layers, or of some; from the first to the last."""
    weights = np.float32([0.1, 0.2, 0.3, 0.15, 0.25, 0.5])
    for name, read in (
        ("weighted_sum", states[3:]),
        ("weighted_sum", states),
        ("scalar_mix", states[1:]),
        ("mix_with_embeddings", states),
        ("mix_last_4", states[2:]),
    ):
        found = choose(name, states, weights=weights[: len(read)])
        expected = sum(w * state for w, state in zip(weights, read, strict=False))
        np.testing.assert_array_equal(found, expected)
    for name, count in (("weighted_sum", 7), ("scalar_mix", 4), ("mix_last_4", 5)):
        with pytest.raises(ValueError):
            choose(name, states, weights=(1.0,) * count)
