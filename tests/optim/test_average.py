"""The mean of the parameters over the last steps of a run."""

import jax
import numpy as np
import optax
import pytest

from bert_jax.config.groups import OptimizerConfig
from bert_jax.optim.average import swap_average
from bert_jax.optim.make import make_optimizer

STEPS = 10


def trained(average_fraction):
    """Returns parameters and optimizer state before the first and after each step."""
    config = OptimizerConfig(
        schedule="constant", learning_rate=0.1, average_fraction=average_fraction
    )
    tx, _ = make_optimizer(config, STEPS, 0)
    rng = np.random.default_rng(0)
    params = {"kernel": rng.normal(size=(3, 4)).astype(np.float32)}
    states = [(params, tx.init(params))]
    for _ in range(STEPS):
        grads = {"kernel": rng.normal(size=(3, 4)).astype(np.float32)}
        updates, opt_state = jax.jit(tx.update)(grads, states[-1][1], states[-1][0])
        states.append((optax.apply_updates(states[-1][0], updates), opt_state))
    return states


@pytest.mark.parametrize("fraction, averaged", [(0.29, 3), (0.01, 1)])
def test_the_mean_of_the_last_steps_is_beside_parameters_that_are_trained_as_without_it(
    fraction, averaged
):
    plain = [params["kernel"] for params, _ in trained(0.0)]
    for step, state in enumerate(trained(fraction)):
        np.testing.assert_array_equal(state[0]["kernel"], plain[step])
        first = min(step, STEPS - averaged + 1)
        mean, rest = swap_average(*state)
        expected = np.mean([np.float64(kernel) for kernel in plain[first : step + 1]], axis=0)
        np.testing.assert_allclose(mean["kernel"], expected, rtol=1e-6, atol=1e-7)
        if first == step:
            np.testing.assert_array_equal(mean["kernel"], plain[step])
        jax.tree.map(np.testing.assert_array_equal, swap_average(mean, rest), state)


def test_without_an_average_nothing_is_swapped():
    params, opt_state = trained(0.0)[-1]
    found = swap_average(params, opt_state)
    assert found[0] is params and found[1] is opt_state
