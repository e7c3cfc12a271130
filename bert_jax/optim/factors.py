"""Learning rate factors by parameter path: by layer, by pattern, and 0 for frozen layers."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.devices.trees import map_paths
from bert_jax.files.errors import UserError


def scale_by(factors_of: Callable[[Any], Any]) -> optax.GradientTransformation:
    """Multiplies each update by its own factor; a factor of 0 removes it, even if it is NaN.

    Args:
      factors_of: returns the factors of a tree of parameters; `init` calls it too, so its errors
        are raised at the start of a run.
    """

    def init(params: Any) -> optax.EmptyState:
        factors_of(params)
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params

        def scale(update, factor):
            return update * factor if factor else jnp.zeros_like(update)

        return jax.tree.map(scale, updates, factors_of(updates)), state

    return optax.GradientTransformation(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformationExtraArgs:
    """Scales gradients whose global norm is above `max_norm` down to that norm.

    `update` takes the norm as `gradient_norm`, if it is known. optax's function divides each
    element by the norm, an operation that XLA does not recompute: it stores the clipped gradient
    for the two moments that read it.
    """

    def update(
        updates: Any, state: Any, params: Any = None, *, gradient_norm: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        del params
        norm = optax.tree.norm(updates) if gradient_norm is None else gradient_norm
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        return jax.tree.map(lambda update: update * factor.astype(update.dtype), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def rate_factors(params: Any, rates: Sequence[tuple[str, float]]) -> Any:
    """Returns each parameter's learning rate factor: that of the first pattern found in its path.

    Args:
      params: the tree.
      rates: (regular expression to search for in a path, factor), ...; 1 where none matches.

    Raises:
      UserError: a pattern matches no parameter.
    """
    names = jax.tree.leaves(map_paths(str, params))
    for pattern, _ in rates:
        if not any(re.search(pattern, name) for name in names):
            raise UserError(
                f"config.optimizer.rates: {pattern!r} matches none of the model's {len(names)}"
                f" parameters, whose paths look like {', '.join(names[:: -(-len(names) // 3)])}:"
                " correct or remove it."
            )

    def factor(name: str) -> float:
        return next((factor for pattern, factor in rates if re.search(pattern, name)), 1.0)

    return map_paths(factor, params)


def depth_factors(params: Any, layer_decay: float, encoder: str) -> Any:
    """Returns each parameter's learning rate factor: layer_decay for each layer above it.

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


# The depth of heads, poolers and the norm after the last layer.
_ABOVE = -1


def _depth(name: str, encoder: str) -> int:
    """Returns 0 for the embeddings, n for the n-th layer, _ABOVE for what is above the layers."""
    above = (f"{encoder}/pooler/", f"{encoder}/encoder/layer_norm/")
    if not name.startswith(f"{encoder}/") or name.startswith(above):
        return _ABOVE
    match = re.search(r"/layer_(\d+)/", name)
    return int(match[1]) + 1 if match else 0
