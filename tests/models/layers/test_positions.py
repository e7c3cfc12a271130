"""Positions against their formulas, also far ones; what attends to what: test_against_numpy."""

import cmath
import math

import jax.numpy as jnp
import numpy as np

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
