"""The optimizer of a run: clipping, a row of OPTIMIZERS, a schedule, and factors by parameter.

In this order, a step clips the gradient by its global norm, applies a row of OPTIMIZERS, which also
adds the weight decay, and multiplies by the learning rate, as in `optimization.py` of
google-research/bert.
"""

import optax

from bert_jax.config.groups import OptimizerConfig
from bert_jax.files.errors import UserError
from bert_jax.optim.average import average_params
from bert_jax.optim.factors import (
    clip_by_global_norm,
    depth_factors,
    rate_factors,
    scale_by,
    trained_mask,
)
from bert_jax.optim.optimizers import OPTIMIZERS
from bert_jax.optim.schedules import SCHEDULES, make_schedule


def check_names(config: OptimizerConfig) -> None:
    """Raises UserError for an optimizer or a schedule that does not exist."""
    for what, name, table in (
        ("optimizer", config.name, OPTIMIZERS),
        ("schedule", config.schedule, SCHEDULES),
    ):
        if name not in table:
            raise UserError(f"Unknown {what} {name!r}. Available: {', '.join(table)}.")


def make_optimizer(
    config: OptimizerConfig, num_steps: int, warmup_steps: int
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """Returns the optimizer of a run.

    Args:
      config: its settings.
      num_steps: steps of the whole run.
      warmup_steps: the first of them, during which the learning rate rises.

    Returns:
      The transformation from gradients to what is added to the parameters, and its schedule. The
      transformation's `update` takes the global norm of the gradients as `gradient_norm`, and
      computes it if it is not given.

    Raises:
      UserError: for an optimizer or a schedule that does not exist.
    """
    check_names(config)
    schedule = make_schedule(config, num_steps, warmup_steps)
    clip = clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    stages = [clip, OPTIMIZERS[config.name](config), optax.scale_by_learning_rate(schedule)]
    if config.layer_decay != 1.0:
        stages.append(
            scale_by(lambda params: depth_factors(params, config.layer_decay, config.encoder))
        )
    if config.rates:
        stages.append(scale_by(lambda params: rate_factors(params, config.rates)))
    if config.frozen_layers:
        freeze = scale_by(lambda params: trained_mask(params, config.frozen_layers, config.encoder))
        # Freezes before clipping, which then computes its own norm: that of the trained parameters.
        own_norm = optax.GradientTransformation(
            clip.init, lambda updates, state, params=None: clip.update(updates, state, params)
        )
        stages = [freeze, own_norm, *stages[1:], freeze]
    tx = optax.chain(*stages)
    if config.average_fraction:
        tx = average_params(tx, num_steps - max(1, round(config.average_fraction * num_steps)))
    return tx, schedule
