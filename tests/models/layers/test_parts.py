"""The parts by themselves: dropout, matrix product, layer norm."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax.devices import sharding
from bert_jax.models.layers.cpu import matmul, rounded_matmul, word_logits
from bert_jax.models.layers.dropout import Dropout, hashed_bits, random_bits
from bert_jax.models.layers.norm import layer_norm
from tests.models.small import make_config

GENERATORS = ["threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "mulxor"]


def drop(x, rate=0.1, seed=0, prng_impl="threefry4x32"):
    dropout = Dropout(rate, prng_impl)
    return dropout.apply({}, x, deterministic=False, rngs={"dropout": jax.random.key(seed)})


@pytest.mark.parametrize("prng_impl", GENERATORS)
def test_dropout_drops_its_fraction_and_keeps_the_mean(prng_impl):
    y, again, other = (
        np.asarray(drop(jnp.ones((64, 100, 100)), seed=seed, prng_impl=prng_impl))
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(y, again)
    assert (y != other).any()
    dropped = y == 0
    assert dropped.mean() == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / y.size))
    np.testing.assert_allclose(y[~dropped], 1 / 0.9, rtol=1e-6)
    # Neighbours in any direction are independent.
    for axis in range(3):
        both = np.take(dropped, range(1, y.shape[axis]), axis) & np.take(
            dropped, range(y.shape[axis] - 1), axis
        )
        assert both.mean() == pytest.approx(0.01, abs=6 * math.sqrt(0.01 / both.size))


@pytest.mark.parametrize("prng_impl", ["threefry4x32", "mulxor"])
@pytest.mark.parametrize("shape", [(3, 12, 5), (2, 3, 6, 7), (2, 7, 5), (8, 5)], ids=str)
def test_masks_that_are_drawn_in_parts_have_the_bits_of_the_whole(shape, prng_impl):
    """The lengths 12, 6 and 7 are drawn in four, two and one parts."""
    dropped = np.asarray(drop(jnp.ones(shape), prng_impl=prng_impl)) == 0
    key = Dropout(0.1).bind({}, rngs={"dropout": jax.random.key(0)}).make_rng("dropout")
    if prng_impl == "mulxor":
        bits = np.int64(hashed_bits(key, shape)) + 2**31
    else:
        bits = np.asarray(random_bits(key, shape, prng_impl))
    np.testing.assert_array_equal(dropped, bits < round(0.1 * 2**32))


KEY = jax.random.key(5, impl="threefry2x32")


def test_hashed_bits_are_products_and_xors_of_the_position_and_the_words_of_a_row():
    words = np.asarray(random_bits(KEY, (3, 4, 6, 1), "threefry4x32")).swapaxes(0, 1)
    bits = np.arange(500, dtype=np.uint32) + words[0]
    bits = bits * np.uint32(0x9E3779B9)
    for word, factor in zip(words[1:], (0x21F0AAAD, 0x735A2D97, 0x85EBCA6B), strict=True):
        bits = (bits ^ word) * np.uint32(factor)
    np.testing.assert_array_equal(np.asarray(hashed_bits(KEY, (3, 6, 500))).view(np.uint32), bits)


def test_hashed_bits_are_the_same_on_a_mesh():
    mesh = sharding.make_mesh(2, 2, 2)
    spec = jax.sharding.NamedSharding(mesh, PartitionSpec(("data", "fsdp"), None, "tensor"))
    draw = functools.partial(hashed_bits, shape=(8, 6, 10))
    np.testing.assert_array_equal(jax.jit(draw, out_shardings=spec)(KEY), draw(KEY))


def test_values_that_mulxor_drops_are_independent():
    """By columns, by rows, of neighbours at any distance, and of different keys."""
    draw = jax.jit(functools.partial(hashed_bits, shape=(4096, 768)))
    keys = [jax.random.fold_in(KEY, number) for number in range(2)]
    dropped = np.stack([np.asarray(draw(key)) < round(0.1 * 2**32) - 2**31 for key in keys])

    def assert_chi_square(statistic, degrees):  # within five standard deviations
        assert abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)

    rows, columns = 2 * 4096, 768
    drops = dropped.reshape(rows, columns)
    assert abs(drops.mean() - 0.1) < 5 * math.sqrt(0.09 / drops.size) < 1e-3
    assert_chi_square(((drops.sum(0) - 0.1 * rows) ** 2 / (0.09 * rows)).sum(), columns)
    # Sequences that spread evenly would have fewer differences between rows.
    assert_chi_square(((drops.sum(1) - 0.1 * columns) ** 2 / (0.09 * columns)).sum(), rows)

    def correlation(one, other):  # in standard deviations
        return ((one - 0.1) * (other - 0.1)).sum() / (0.09 * math.sqrt(one.size))

    assert abs(correlation(*dropped)) < 5
    z = (dropped[0] - 0.1) / 0.3
    for lag in (2**power for power in range(9)):
        assert abs(correlation(dropped[0, :, :-lag], dropped[0, :, lag:])) < 5
        assert abs(correlation(dropped[0, :-lag], dropped[0, lag:])) < 5
        # Rows that are correlated by themselves, with either sign. The fourth moment of z adds to
        # the variance of a square: 2 + (1 / 0.09 - 3)^2 / 768.
        of_rows = (z[:, :-lag] * z[:, lag:]).sum(axis=1) / math.sqrt(768 - lag)
        assert abs((of_rows**2).mean() - 1) < 5 * math.sqrt(2.2 / len(of_rows))


def test_the_gradient_of_dropout_passes_what_was_kept_and_there_is_none_without():
    x = jnp.linspace(1, 2, 200)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x, deterministic=True), x)
    y, gradient = jax.vjp(drop, x)
    np.testing.assert_allclose(gradient(jnp.ones(200))[0], y / x, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "shapes", "rounds"),
    [
        (matmul, ((2, 5, 3), (3, 4)), False),
        (rounded_matmul, ((2, 5, 32), (32, 48)), True),  # a multiple of the transpose's panels
        (rounded_matmul, ((2, 5, 5), (5, 48)), True),
        (lambda *inputs: word_logits(*inputs, False), ((2, 5, 32), (47, 32), (47,)), False),
        (lambda *inputs: word_logits(*inputs, True), ((2, 5, 32), (47, 32), (47,)), True),
    ],
)
def test_products_and_their_gradients_are_those_of_float64(function, shapes, rounds):
    """Of operands that are rounded to bfloat16, or not."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    y, pullback = jax.vjp(function, *inputs)
    weights = rng.standard_normal(y.shape).astype(np.float32)
    gradients = pullback(weights)
    assert {a.dtype for a in (y, *gradients)} == {jnp.dtype("float32")}

    exact = round_to_bfloat16 if rounds else np.float64
    (x, kernel), weights = map(exact, inputs[:2]), exact(weights)
    if len(shapes) == 3:  # the table of words has the other order of axes
        of_table = np.einsum("bro,bri->oi", weights, x)
        expected = x @ kernel.T + inputs[2], weights @ kernel, of_table, weights.sum((0, 1))
    else:
        expected = x @ kernel, weights @ kernel.T, np.einsum("bri,bro->io", x, weights)
    for ours, theirs in zip((y, *gradients), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def round_to_bfloat16(array):
    return array.astype(jnp.bfloat16).astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "mean", "tolerance"), [("float32", 1000, (0, 2e-4)), ("bfloat16", 20, (2**-8, 1e-4))]
)
def test_layer_norm_is_exact_far_from_zero_and_computes_in_float32(dtype, mean, tolerance):
    """The variance comes from centred values: E[x^2] - E[x]^2 would leave nothing of it here."""
    x = jnp.asarray(mean + np.random.default_rng(0).standard_normal((2, 3, 256)), dtype)
    norm = layer_norm(make_config(dtype=dtype))
    ours = norm.apply(norm.init(jax.random.key(0), x), x)
    assert ours.dtype == dtype
    exact = np.asarray(x, np.float64)
    expected = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    rtol, atol = tolerance
    np.testing.assert_allclose(np.asarray(ours, np.float64), expected, rtol=rtol, atol=atol)
