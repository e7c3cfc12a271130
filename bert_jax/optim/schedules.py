"""Learning rates as functions of the step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config.groups import OptimizerConfig
from bert_jax.config.phases import phase_bounds


def bert_linear(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """The released code's: linear decay to 0 from step 0 on, replaced at its start by the warm-up.

    The rate drops slightly at the end of the warm-up: with a peak of 1e-4, a million steps and
    10,000 of warm-up it is 9.999e-5 at step 9,999 and 9.9e-5 at step 10,000.
    """
    peak = config.learning_rate
    decay = lambda step: peak * (num_steps - step) / num_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def linear(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up to the peak, then linear decay to 0 at the last step."""
    peak, decay_steps = config.learning_rate, max(1, num_steps - warmup_steps)
    decay = lambda step: peak * (num_steps - step) / decay_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def trapezoid(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up, the peak rate, then linear decay to 0 in the last `decay_fraction` of the steps.

    Zhai et al. 2022 (section 3.5) and Hägele et al. 2024 train with such a "cooldown".
    """
    peak, tail_steps = config.learning_rate, max(1, round(config.decay_fraction * num_steps))
    return _after_warmup(
        lambda step: peak * jnp.minimum(1.0, (num_steps - step) / tail_steps), peak, warmup_steps
    )


def constant(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up, then the constant peak."""
    del num_steps
    peak = config.learning_rate
    return _after_warmup(lambda step: jnp.full_like(step, peak), peak, warmup_steps)


def cosine(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up to the peak, then half a cosine to 0 at the last step (Loshchilov & Hutter 2017)."""
    peak, decay_steps = config.learning_rate, max(1, num_steps - warmup_steps)
    return _after_warmup(
        lambda step: peak * _half_cosine((num_steps - step) / decay_steps), peak, warmup_steps
    )


def root(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """peak * sqrt(1 - step / num_steps), replaced by the warm-up at its start.

    `PolyWarmUpScheduler` of NVIDIA/DeepLearningExamples with its degree, for batches of 64k.
    """
    peak = config.learning_rate
    left = lambda step: jnp.maximum(num_steps - step, 0.0) / num_steps  # noqa: E731
    return _after_warmup(lambda step: peak * jnp.sqrt(left(step)), peak, warmup_steps)


def gpt_cosine(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """`warmup_cosine` of GPT's `opt.py`: the cosine begins at step 0, as the decay of bert_linear.

    The rate drops slightly at the end of the warm-up.
    """
    peak = config.learning_rate
    return _after_warmup(
        lambda step: peak * _half_cosine((num_steps - step) / num_steps), peak, warmup_steps
    )


def gpt_linear(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """`warmup_linear` of GPT's `opt.py`: linear decay to 0 from step 0 on, warm-up included.

    With x = step / num_steps, the rate is peak * (1 - x), times step / warmup_steps below
    `warmup_steps`; so the peak itself is never reached.
    """
    risen = constant(config, num_steps, warmup_steps)
    return lambda step: risen(step) * jnp.maximum(1.0 - step / num_steps, 0.0)


def _half_cosine(left: Any) -> jax.Array:
    """(1 + cos(pi * x)) / 2 at x = 1 - left, by the sine, which is exact near the end; from 1 to 0.

    `left` is the share of the decay that is left; below 0 it counts as 0.
    """
    return jnp.square(jnp.sin(0.5 * jnp.pi * jnp.maximum(left, 0.0)))


def _after_warmup(rest: optax.Schedule, peak: float, warmup_steps: int) -> optax.Schedule:
    """peak * step / warmup_steps below `warmup_steps`, then `rest`, never below 0."""

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        warmup = peak * step / max(1, warmup_steps)
        return jnp.where(step < warmup_steps, warmup, jnp.maximum(rest(step), 0.0))

    return schedule


# (settings, steps of the whole run, warm-up steps) -> the schedule.
SCHEDULES: dict[str, Callable[[OptimizerConfig, int, int], optax.Schedule]] = {
    "bert_linear": bert_linear,
    "linear": linear,
    "trapezoid": trapezoid,
    "constant": constant,
    "cosine": cosine,
    "root": root,
    "gpt_linear": gpt_linear,
    "gpt_cosine": gpt_cosine,
}


def make_schedule(config: OptimizerConfig, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Returns the schedule of a run; with `config.phase_schedules`, one per phase, joined.

    Args:
      config: names a row of SCHEDULES.
      num_steps: steps of the whole run.
      warmup_steps: warm-up steps, if there are no `phase_schedules`.
    """
    make = SCHEDULES[config.schedule]
    if not config.phase_schedules:
        return make(config, num_steps, warmup_steps)
    bounds = phase_bounds(config.phase_shares, num_steps)
    schedules = []
    for (rate, warmup), (start, stop) in zip(config.phase_schedules, bounds, strict=True):
        of_phase = dataclasses.replace(config, learning_rate=rate)
        schedules.append(make(of_phase, max(1, stop - start), round(warmup * (stop - start))))
    return optax.join_schedules(schedules, [start for start, _ in bounds[1:]])
