"""The parts by themselves: dropout, matrix product, layer norm."""

import functools
import itertools
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


@pytest.fixture(scope="module")
def dropped_by_hash():
    """bool[key, row, column]: what mulxor drops at a rate of 0.1 with 4 keys."""
    draw = jax.jit(functools.partial(hashed_bits, shape=(4096, 768)))
    keys = [jax.random.fold_in(KEY, number) for number in range(4)]
    return np.stack([np.asarray(draw(key)) < round(0.1 * 2**32) - 2**31 for key in keys])


def assert_chi_square(statistic, degrees):
    """Within five standard deviations of its expectation."""
    assert abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


def test_mulxor_drops_each_column_as_often_and_rows_as_differently_as_chance(dropped_by_hash):
    rows, columns = 4 * 4096, 768
    drops = dropped_by_hash.reshape(rows, columns)
    of_column, of_row = drops.sum(axis=0), drops.sum(axis=1)
    assert abs(drops.mean() - 0.1) < 5 * math.sqrt(0.09 / drops.size) < 5e-4
    assert_chi_square(((of_column - 0.1 * rows) ** 2 / (0.09 * rows)).sum(), columns)
    # Sequences that spread evenly would have fewer differences between rows.
    assert_chi_square(((of_row - 0.1 * columns) ** 2 / (0.09 * columns)).sum(), rows)


def test_values_that_mulxor_drops_are_independent(dropped_by_hash):
    drops = dropped_by_hash[..., :760].reshape(-1, 8)
    counts = np.bincount(drops @ (1 << np.arange(8)), minlength=256)
    number = np.array([value.bit_count() for value in range(256)])
    expected = 0.1**number * 0.9 ** (8 - number) * len(drops)
    likely = expected > 10
    others = expected[~likely].sum()
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    statistic += (counts[~likely].sum() - others) ** 2 / others
    assert_chi_square(statistic, likely.sum())

    def correlation(one, other):  # in standard deviations
        return ((one - 0.1) * (other - 0.1)).sum() / (0.09 * math.sqrt(one.size))

    lags = [2**power for power in range(9)]
    for drops in dropped_by_hash:
        assert all(abs(correlation(drops[:, :-n], drops[:, n:])) < 5 for n in lags)  # columns
        assert all(abs(correlation(drops[:-n], drops[n:])) < 5 for n in lags)  # rows
    for number, other in itertools.combinations(range(4), 2):  # steps and layers
        assert abs(correlation(dropped_by_hash[number], dropped_by_hash[other])) < 5
    # Rows that are correlated by themselves, with either sign.
    z = (dropped_by_hash[0] - 0.1) / 0.3
    for n in lags:
        of_rows = (z[:, :-n] * z[:, n:]).sum(axis=1) / math.sqrt(768 - n)
        # The fourth moment of z adds to the variance of a square: 2 + (1 / 0.09 - 3)^2 / 768.
        assert abs((of_rows**2).mean() - 1) < 5 * math.sqrt(2.2 / len(of_rows))


def test_the_gradient_of_dropout_passes_what_was_kept_and_there_is_none_without():
    x = jnp.linspace(1, 2, 200)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x, deterministic=True), x)
    y, gradient = jax.vjp(drop, x)
    np.testing.assert_allclose(gradient(jnp.ones(200))[0], y / x, rtol=1e-6)


def test_the_matrix_product_has_the_gradient_of_the_plain_one():
    rng = np.random.default_rng(0)
    x, kernel, weights = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 3), (3, 4), (2, 5, 4))
    )
    ours = jax.grad(lambda x, k: (weights * matmul(x, k) ** 2).sum(), (0, 1))(x, kernel)
    plain = jax.grad(lambda x, k: (weights * (x @ k) ** 2).sum(), (0, 1))(x, kernel)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, plain)


@pytest.mark.parametrize("width", [32, 5])  # a multiple of the panels of the transpose, and not
def test_rounded_products_are_those_of_rounded_operands(width):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, width)).astype(np.float32)
    kernel = rng.standard_normal((width, 48)).astype(np.float32)
    weights = rng.standard_normal((2, 5, 48)).astype(np.float32)
    y, pullback = jax.vjp(rounded_matmul, x, kernel)
    gradients = pullback(weights)
    assert {a.dtype for a in (y, *gradients)} == {jnp.dtype("float32")}

    x, kernel, weights = map(round_to_bfloat16, (x, kernel, weights))
    expected = x @ kernel, weights @ kernel.T, np.einsum("bri,bro->io", x, weights)
    for ours, exact in zip((y, *gradients), expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rounds", [False, True])
def test_the_logits_of_words_and_their_gradients_are_those_of_the_products(rounds):
    rng = np.random.default_rng(0)
    shapes = (2, 5, 32), (47, 32), (47,), (2, 5, 47)
    x, table, bias, weights = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    logits, pullback = jax.vjp(lambda *inputs: word_logits(*inputs, rounds), x, table, bias)
    gradients = pullback(weights)
    assert {a.dtype for a in (logits, *gradients)} == {jnp.dtype("float32")}

    if rounds:
        x, table, weights = map(round_to_bfloat16, (x, table, weights))
    expected = (
        x @ table.T + bias,
        weights @ table,
        np.einsum("brv,bri->vi", weights, x),
        weights.sum((0, 1)),
    )
    for ours, exact in zip((logits, *gradients), expected, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)


def round_to_bfloat16(array):
    return array.astype(jnp.bfloat16).astype(np.float64)


def test_layer_norm_is_exact_far_from_zero():
    """The variance comes from centred values: E[x^2] - E[x]^2 would leave nothing of it here."""
    x = 1000 + np.random.default_rng(0).standard_normal((2, 3, 256)).astype(np.float32)
    norm = layer_norm(make_config())
    ours = norm.apply(norm.init(jax.random.key(0), x), x)
    x = x.astype(np.float64)
    expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(ours, expected, atol=2e-4)


def test_layer_norm_computes_in_float32_for_bfloat16():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 256)) + 20, jnp.bfloat16)
    norm = layer_norm(make_config(dtype="bfloat16"))
    ours = norm.apply(norm.init(jax.random.key(0), x), x)
    assert ours.dtype == jnp.bfloat16
    exact = np.asarray(x, np.float64)
    expected = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(ours, np.float64), expected, rtol=2**-8, atol=1e-4)
