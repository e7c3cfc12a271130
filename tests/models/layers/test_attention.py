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


def test_attention_is_softmax_of_products(problem):
    query, key, value = (np.float64(array) for array in problem[:3])
    scores = np.einsum("bshk,bthk->bhst", query, key) / np.sqrt(8) + np.float64(problem[3].bias)
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    found, kept = attention(*problem, keep_probabilities=True)
    seen = slice(0, 8)  # the others are padding, which sees nothing
    np.testing.assert_allclose(kept[:, :, seen], probs[:, :, seen], atol=1e-6)
    expected = np.einsum("bhst,bthk->bshk", probs, value)
    np.testing.assert_allclose(found[:, seen], expected[:, seen], atol=1e-5)
    np.testing.assert_array_equal(attention(*problem)[0], found)
    assert attention(*problem)[1] is None
    halved, before = attention(*problem, dropout=lambda p: p / 2, keep_probabilities=True)
    np.testing.assert_allclose(halved, found / 2, atol=1e-6)
    np.testing.assert_array_equal(before, kept)


def test_dot_product_is_einsum_with_its_gradients(problem):
    *heads, mask = problem

    def run(implementation):
        def total(*heads):
            found, _ = attention(*heads, mask, implementation=implementation)
            return jnp.sin(found).sum(), found

        return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*heads)

    one, other = run("einsum"), run("dot_product")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), one, other)


@pytest.mark.parametrize("seed", [None, 3], ids=["lowest mask value", "dropout"])
def test_a_model_with_dot_product_has_the_numbers_of_einsum_and_drops_the_same_values(seed):
    """The names of the dropouts, which decide their bits, do not depend on the implementation."""
    mask_value = -10_000.0 if seed else float(np.finfo(np.float32).min)
    config = make_config(num_layers=1, attention_dropout_rate=0.0, mask_value=mask_value)
    other = dataclasses.replace(config, attention="dot_product")
    batch = make_batch(config)
    params = random_params(Bert(config), batch)
    hidden, same = (apply(Bert(c), params, batch, seed).hidden for c in (config, other))
    is_token = batch["example_ids"] > 0
    np.testing.assert_allclose(hidden[is_token], same[is_token], rtol=0, atol=1e-5)


def test_what_an_implementation_cannot_do_is_an_error(problem):
    for implementation in ("dot_product", "cudnn", "splash"):
        message = f"^attention='{implementation}' has no access to attention probabilities: set"
        with pytest.raises(ValueError, match=message):
            attention(*problem, implementation=implementation, keep_probabilities=True)
        message = f"^attention='{implementation}' has no dropout of attention probabilities: set"
        with pytest.raises(ValueError, match=message):
            attention(*problem, implementation=implementation, dropout=lambda p: p)


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


def test_a_rematerialised_block_stores_no_probabilities():
    assert PROBABILITIES in shapes_stored(*make_step(remat=False))  # what the next line would miss
    assert PROBABILITIES not in shapes_stored(*make_step(remat=True))


def test_products_with_kernels_are_kept_on_request():
    inner = (BATCH, SEQ, make_config().intermediate_size)
    products = shapes_stored(*make_step(remat=True, remat_policy="products"))
    assert inner in products and PROBABILITIES not in products
    assert inner not in shapes_stored(*make_step(remat=True))


def outputs_of_calls(jaxpr, names):
    """Shapes of the outputs of all calls with one of these primitives, and of the jaxpr itself."""
    shapes = [var.aval.shape for var in jaxpr.outvars]
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found = outputs_of_calls(inner, names)
                shapes += found if equation.primitive.name in names else []
    return shapes


def test_no_call_of_a_training_step_returns_probabilities():
    loss, params = make_step(remat=True)
    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(params).jaxpr
    calls = {equation.primitive.name for equation in jaxpr.eqns} & {"checkpoint", "remat2", "remat"}
    assert calls
    assert PROBABILITIES not in outputs_of_calls(jaxpr, calls)
