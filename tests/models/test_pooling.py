"""Pooling against loops over the examples of each row."""

import jax
import numpy as np
import pytest

from bert_jax.models.pooling import POOLS, pool

NAMES = tuple(POOLS)


@pytest.fixture
def packed():
    """float[3, 9, 4] and a batch: two examples, one with padding between, and no example at all."""
    example_ids = np.array([[1, 1, 1, 2, 2, 2, 2, 0, 0], [0, 1, 1, 1, 0, 0, 2, 0, 0], [0] * 9])
    batch = {
        "example_ids": example_ids.astype(np.int32),
        "cls_positions": np.array([[0, 3], [1, 6], [0, 0]], np.int32),
    }
    hidden = np.random.default_rng(0).normal(size=(3, 9, 4)).astype(np.float32)
    return hidden, batch


def by_hand(name, hidden, example_ids, number):
    """float[4], of one example of a row."""
    tokens = [x for x, of in zip(hidden, example_ids, strict=True) if of == number]
    if not tokens:
        return hidden[0] if name in ("cls", "last") else np.zeros(hidden.shape[-1])
    return {
        "cls": lambda: tokens[0],
        "last": lambda: tokens[-1],
        "mean": lambda: np.mean(tokens, axis=0),
        "max": lambda: np.max(tokens, axis=0),
    }[name]()


@pytest.mark.parametrize("name", NAMES)
def test_every_example_of_a_row_has_its_vector(packed, name):
    hidden, batch = packed
    found = pool(name, hidden, batch)
    for row in range(3):
        for number in (1, 2):
            expected = by_hand(name, hidden[row], batch["example_ids"][row], number)
            np.testing.assert_allclose(found[row, number - 1], expected, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_at_padding_have_no_effect(packed, name):
    hidden, batch = packed
    hidden, batch = hidden[:2], {key: array[:2] for key, array in batch.items()}
    is_token = batch["example_ids"][:, :, None] > 0

    def total(hidden):
        return (pool(name, hidden, batch) ** 2).sum()

    value, gradient = jax.value_and_grad(total)(hidden)
    changed = np.where(is_token, hidden, 1e6).astype(np.float32)
    other, other_gradient = jax.value_and_grad(total)(changed)
    np.testing.assert_array_equal(other, value)
    np.testing.assert_array_equal(other_gradient, gradient)
    assert not np.asarray(gradient)[~is_token[..., 0]].any()
    assert np.isfinite(gradient).all()
