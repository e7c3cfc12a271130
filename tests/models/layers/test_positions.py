"""Positions and masks against their formulas, one position or pair after the other."""

import cmath
import math

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.layers.masks import attention_bias, can_attend
from bert_jax.models.layers.positions import rotate, rotation, sinusoidal


def test_sinusoidal_positions_are_the_closed_form():
    places, features = np.array([[0, 1, 5, 511], [3, 2, 1, 0]], np.int32), 12
    found = sinusoidal(jnp.asarray(places), features)
    assert found.shape == (2, 4, features) and found.dtype == jnp.float32
    for row, position in np.ndindex(places.shape):
        for i in range(features // 2):
            angle = places[row, position] / 10_000 ** (2 * i / features)
            pair = found[row, position, 2 * i : 2 * i + 2]
            np.testing.assert_allclose(pair, [math.sin(angle), math.cos(angle)], atol=5e-5)


def test_rotary_positions_turn_complex_numbers():
    rng = np.random.default_rng(0)
    places, half = np.array([[0, 1, 7, 300]], np.int32), 4
    x = rng.standard_normal((1, 4, 2, 2 * half)).astype(np.float32)
    found = np.asarray(rotate(jnp.asarray(x), rotation(jnp.asarray(places), 2 * half)))
    for position, head, i in np.ndindex(4, 2, half):
        number = complex(x[0, position, head, i], x[0, position, head, i + half])
        angle = places[0, position] * 10_000 ** (-2 * i / (2 * half))
        turned = number * cmath.exp(1j * angle)
        np.testing.assert_allclose(found[0, position, head, i], turned.real, atol=1e-4)
        np.testing.assert_allclose(found[0, position, head, i + half], turned.imag, atol=1e-4)
    np.testing.assert_array_equal(found[0, 0], x[0, 0])
    half_precision = jnp.asarray(x, jnp.bfloat16)
    assert rotate(half_precision, rotation(places, 2 * half)).dtype == jnp.bfloat16


# Three examples, then padding whose positions mean nothing; and one example of the full length.
EXAMPLE_IDS = np.array([[1, 1, 1, 1, 2, 2, 2, 3, 0, 0], [1] * 10], np.int32)
POSITION_IDS = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 0, 5], list(range(10))], np.int32)


@pytest.mark.parametrize(
    ("mask", "window"),
    [("bidirectional", 0), ("causal", 0), ("window", 1), ("window", 2), ("window", 100)],
)
def test_what_can_attend_pair_by_pair(mask, window):
    found = can_attend(jnp.asarray(EXAMPLE_IDS), jnp.asarray(POSITION_IDS), mask, window)
    assert found.shape == (2, 1, 10, 10) and found.dtype == bool
    for row, i, j in np.ndindex(2, 10, 10):
        expected = EXAMPLE_IDS[row, i] == EXAMPLE_IDS[row, j] and EXAMPLE_IDS[row, j] > 0
        if mask == "causal":
            expected = expected and j <= i
        if mask == "window":
            expected = expected and abs(i - j) <= window
        assert bool(found[row, 0, i, j]) == expected, (row, i, j)


def test_the_bias_is_0_where_visible():
    visible = can_attend(jnp.array([[1, 1, 2, 0]]), jnp.array([[0, 1, 0, 0]]), "bidirectional")
    expected = np.full((4, 4), -10_000.0, np.float32)
    expected[:2, :2] = expected[2, 2] = 0
    bias = attention_bias(visible, -10_000.0)
    assert bias.dtype == jnp.float32
    np.testing.assert_array_equal(bias, expected[None, None])
