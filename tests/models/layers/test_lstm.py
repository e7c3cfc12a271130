"""The gradients of the loop over words, against those that jax derives from the loop itself."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.elmo import lstm

SEQ, BATCH, CELL, FEATURES = 7, 3, 8, 4


@pytest.fixture(params=[True, False], ids=["projection", "no projection"])
def config(request):
    return types.SimpleNamespace(
        cell_size=CELL,
        projection_size=FEATURES if request.param else CELL,
        has_projection=request.param,
        cell_clip=0.4,
        projection_clip=0.3,
        dtype="float32",
    )


@pytest.fixture
def problem(config):
    """Kernels, inputs, masks and the state before: some values are clipped."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    features = config.projection_size
    kernels = (
        normal(features, 4 * CELL),
        normal(CELL, features) if config.has_projection else None,
    )
    masks = (
        jnp.asarray(rng.random((SEQ, BATCH)) < 0.2),
        jnp.asarray(rng.random((SEQ, BATCH)) < 0.8),
    )
    state = lstm.LstmState(normal(BATCH, CELL), normal(BATCH, features))
    return kernels, normal(SEQ, BATCH, 4 * CELL), masks, state


def test_the_gradients_are_those_of_the_loop(config, problem):
    kernels, inputs, masks, state = problem
    if not (reverse := config.has_projection):
        masks = (None, None)

    def total(loop, kernels, inputs, state):
        outputs, last = loop(kernels, inputs, state)
        return (jnp.sin(3 * outputs) * inputs[..., : outputs.shape[-1]]).sum() + sum(
            jnp.cos(leaf).sum() for leaf in jax.tree.leaves(last)
        )

    def ours(kernels, inputs, state):
        return lstm._loop(config, reverse, kernels, inputs, masks, state)

    def derived(kernels, inputs, state):
        return lstm._scan(config, reverse, kernels, inputs, None, masks, state)[0]

    found, expected = (
        jax.jit(jax.value_and_grad(lambda *a, loop=loop: total(loop, *a), (0, 1, 2)))(
            kernels, inputs, state
        )
        for loop in (ours, derived)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected
    )
    assert all(np.abs(g).max() > 1e-3 for g in jax.tree.leaves(found[1]))
