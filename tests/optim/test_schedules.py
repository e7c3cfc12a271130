"""Learning rates in closed form."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.groups import OptimizerConfig
from bert_jax.config.store import parse
from bert_jax.optim.make import make_optimizer
from bert_jax.optim.schedules import SCHEDULES
from configs import large_batch


@pytest.mark.parametrize(
    "name, step, rate",
    [
        ("bert_linear", 0, 0),
        ("bert_linear", 9_999, 9.999e-5),
        ("bert_linear", 10_000, 9.9e-5),  # the line started at step 0: the rate drops here
        ("bert_linear", 999_999, 1e-10),
        ("bert_linear", 1_100_000, 0),
        ("linear", 10_000, 1e-4),
        ("linear", 505_000, 5e-5),
        ("linear", 1_100_000, 0),
        ("trapezoid", 10_000, 1e-4),
        ("trapezoid", 800_000, 1e-4),
        ("trapezoid", 900_000, 5e-5),  # the tail is the last fifth
        ("trapezoid", 1_100_000, 0),
        ("constant", 10_000, 1e-4),
        ("constant", 1_100_000, 1e-4),
        ("cosine", 10_000, 1e-4),
        ("cosine", 340_000, 0.75e-4),  # a third of the way down: cos(pi / 3) = 1 / 2
        ("cosine", 505_000, 0.5e-4),
        ("cosine", 1_100_000, 0),
        ("root", 10_000, 1e-4 * math.sqrt(0.99)),
        ("root", 750_000, 0.5e-4),
        ("root", 1_100_000, 0),
        ("gpt_cosine", 5_000, 5e-5),
        ("gpt_cosine", 10_000, 0.5e-4 * (1 + math.cos(0.01 * math.pi))),
        ("gpt_cosine", 750_000, 0.5e-4 * (1 - math.sqrt(0.5))),
        ("gpt_cosine", 1_100_000, 0),
        ("gpt_linear", 5_000, 5e-5 * 0.995),  # the decay multiplies the warm-up too
        ("gpt_linear", 10_000, 9.9e-5),
        ("gpt_linear", 500_000, 5e-5),
        ("gpt_linear", 1_100_000, 0),
    ],
)
def test_rates_of_the_million_steps_of_the_paper(name, step, rate):
    config = OptimizerConfig(schedule=name, learning_rate=1e-4, decay_fraction=0.2)
    schedule = SCHEDULES[name](config, 1_000_000, 10_000)
    np.testing.assert_allclose(schedule(step), rate, rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(jax.jit(schedule)(step), rate, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warmup_the_first_rate_is_the_peak(name):
    assert SCHEDULES[name](OptimizerConfig(learning_rate=1e-4), 100, 0)(0) == np.float32(1e-4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_may_be_all_warmup(name):
    schedule = SCHEDULES[name](OptimizerConfig(learning_rate=1e-4, decay_fraction=1e-6), 10, 10)
    rates = jax.vmap(schedule)(jnp.arange(10))
    decay = 1 - np.arange(10) / 10 if name == "gpt_linear" else 1
    np.testing.assert_allclose(rates, 1e-5 * np.arange(10) * decay, rtol=1e-6)


def test_a_schedule_that_begins_anew_in_each_phase():
    """Of configs/large_batch.py: 7,038 and 1,563 steps, each as if it were a run by itself."""
    config = parse(large_batch.get_config()).optimizer
    _, rate = make_optimizer(config, 8601, 10_000)
    for first, steps, peak, warmup in ((0, 7038, 6e-3, 0.2843), (7038, 1563, 4e-3, 0.128)):
        risen = round(warmup * steps)
        for step in (0, 1, risen - 1, risen, steps // 2, steps - 1):
            expected = peak * (step / risen if step < risen else math.sqrt(1 - step / steps))
            np.testing.assert_allclose(rate(first + step), expected, rtol=1e-5)
