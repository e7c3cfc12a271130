"""The optimizer of a run: clipping, a row of OPTIMIZERS, a schedule, and factors by layer.

An update is, in this order: clip the gradient by its global norm, a row of OPTIMIZERS, which also
adds the weight decay, multiply by the learning rate of the step, as in `optimization.py` of
google-research/bert.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices.trees import map_paths
from bert_jax.files.errors import UserError
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
      num_steps: updates of the whole run.
      warmup_steps: the first of them, during which the learning rate rises.

    Returns:
      The transformation from gradients to what is added to the parameters, and its schedule.

    Raises:
      UserError: for an optimizer or a schedule that does not exist.
    """
    check_names(config)
    schedule = make_schedule(config, num_steps, warmup_steps)
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    stages = [clip, OPTIMIZERS[config.name](config), optax.scale_by_learning_rate(schedule)]
    if config.layer_decay != 1.0:
        stages.append(
            _by_path(lambda params: depth_factors(params, config.layer_decay, config.encoder))
        )
    if config.frozen_layers:
        freeze = _by_path(lambda params: trained_mask(params, config.frozen_layers, config.encoder))
        stages = [freeze, *stages, freeze]  # before clipping, so that they are not in the norm
    return optax.chain(*stages), schedule


def _by_path(factors_of: Callable[[Any], Any]) -> optax.GradientTransformation:
    """Multiplies each update by its own factor; a factor of 0 removes it, even if it is NaN."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params

        def scale(update, factor):
            return update * factor if factor else jnp.zeros_like(update)

        return jax.tree.map(scale, updates, factors_of(updates)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def depth_factors(params: Any, layer_decay: float, encoder: str) -> Any:
    """Returns the factor of each parameter's learning rate: layer_decay for each layer above it.

    1 for the heads, layer_decay for the encoder's last layer, and so on down to the embeddings
    (Howard & Ruder 2018, section 3.2, "discriminative fine-tuning").

    Args:
      params: the tree.
      layer_decay: the factor from one layer to the one below it.
      encoder: top-level name of the encoder's parameters.
    """
    depths = map_paths(lambda name: _depth(name, encoder), params)
    top = 1 + max((depth for depth in jax.tree.leaves(depths) if depth != _ABOVE), default=0)

    def factor(depth: int) -> float:
        return layer_decay ** (0 if depth == _ABOVE else top - depth)

    return jax.tree.map(factor, depths)


def trained_mask(params: Any, frozen_layers: int, encoder: str) -> Any:
    """Returns 1 for each parameter that is trained; 0 for the embeddings and the first layers.

    Args:
      params: the tree.
      frozen_layers: number of layers; -1: all parameters of the encoder, its pooler included.
      encoder: top-level name of the encoder's parameters.
    """

    def is_trained(name: str) -> int:
        if frozen_layers == -1:
            return int(not name.startswith(f"{encoder}/"))
        depth = _depth(name, encoder)
        return int(depth == _ABOVE or depth > frozen_layers)

    return map_paths(is_trained, params)


# The depth of heads and poolers.
_ABOVE = -1


def _depth(name: str, encoder: str) -> int:
    """Returns 0 for the embeddings, n for the n-th layer, _ABOVE for heads and the pooler."""
    if not name.startswith(f"{encoder}/") or name.startswith(f"{encoder}/pooler/"):
        return _ABOVE
    match = re.search(r"/layer_(\d+)/", name)
    return int(match[1]) + 1 if match else 0
