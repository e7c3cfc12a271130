"""Attention: its implementations agree, and probabilities exist on request only."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.bert import Bert
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.layers.attention import attention
from bert_jax.models.layers.masks import make_mask
from tests.models.small import (
    apply,
    make_batch,
    make_config,
    pre_training_loss,
    random_params,
)


@pytest.fixture
def problem():
    """Query, key, value of two rows with two examples and padding, and what they attend to."""
    rng = np.random.default_rng(0)
    heads = [jnp.asarray(rng.standard_normal((2, 10, 4, 8)), jnp.float32) for _ in range(3)]
    ids = jnp.asarray(np.repeat([[1, 2, 0]], [5, 3, 2], axis=1).repeat(2, 0))
    positions = jnp.broadcast_to(jnp.arange(10), (2, 10))
    return (*heads, make_mask(ids, positions, "bidirectional", 0, -10_000.0))


def test_what_an_implementation_cannot_do_is_an_error(problem):
    for implementation in ("dot_product", "cudnn", "splash"):
        message = f"^attention='{implementation}' has no access to attention probabilities: set"
        with pytest.raises(ValueError, match=message):
            attention(*problem, implementation=implementation, keep_probabilities=True)
        message = f"^attention='{implementation}' has no dropout of attention probabilities: set"
        with pytest.raises(ValueError, match=message):
            attention(*problem, implementation=implementation, dropout=lambda p: p)


def test_a_model_with_dot_product_drops_the_values_that_one_with_einsum_drops():
    """The names of the dropouts, which decide their bits, do not depend on the implementation."""
    config = make_config(num_layers=1, attention_dropout_rate=0.0)
    other = dataclasses.replace(config, attention="dot_product")
    batch = make_batch(config)
    params = random_params(Bert(config), batch)
    hidden, same = (apply(Bert(c), params, batch, seed=3).hidden for c in (config, other))
    is_token = batch["example_ids"] > 0
    np.testing.assert_allclose(hidden[is_token], same[is_token], rtol=0, atol=1e-5)


def test_probabilities_are_kept_as_they_were_before_dropout(problem):
    """Numbers are in test_against_numpy."""
    found, before = attention(*problem, keep_probabilities=True)
    assert attention(*problem)[1] is None
    halved, kept = attention(*problem, dropout=lambda p: p / 2, keep_probabilities=True)
    np.testing.assert_allclose(halved, found / 2, atol=1e-6)
    np.testing.assert_array_equal(before, kept)


# ------------------------------------------------------------------ probabilities in training

BATCH, SEQ, HEADS = 3, 24, 4
PROBABILITIES = (BATCH, HEADS, SEQ, SEQ)


def make_step(**changes):
    """Returns a loss function of the parameters of one layer, and the parameters."""
    config = make_config(num_layers=1, **changes)
    batch = make_batch(config, batch=BATCH, seq=SEQ)
    model = PreTrainingModel(config, next_sentence=True)

    def loss(params):
        rngs = {"dropout": jax.random.key(0)}
        outputs = model.apply({"params": params}, batch, deterministic=False, rngs=rngs)
        return pre_training_loss(outputs, batch)

    return loss, jax.tree.map(jnp.asarray, random_params(model, batch))


def shapes_stored(loss, params):
    """Shapes of the arrays that the forward pass stores for the backward pass."""
    backward = jax.eval_shape(lambda p: jax.vjp(loss, p)[1], params)
    return [leaf.shape for leaf in jax.tree.leaves(backward)]


def test_a_rematerialised_block_stores_no_probabilities_and_products_on_request():
    inner = (BATCH, SEQ, make_config().intermediate_size)
    plain = shapes_stored(*make_step(remat=False))
    assert PROBABILITIES in plain and inner in plain  # what the next lines would miss
    nothing = shapes_stored(*make_step(remat=True))
    assert PROBABILITIES not in nothing and inner not in nothing
    products = shapes_stored(*make_step(remat=True, remat_policy="products"))
    assert PROBABILITIES not in products and inner in products
