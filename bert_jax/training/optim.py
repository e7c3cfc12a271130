"""BERT's optimizer and its schedule, and the usual alternatives.

An update is, in this order: clip the gradient by its global norm, Adam, add the weight decay, take
the step's learning rate. `optimization.py` of google-research/bert does the same.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Settings of the optimizer; configs/base.py says what each field means.

    Raises:
      ValueError: for an optimizer or a schedule that does not exist.
    """

    name: str
    learning_rate: float
    schedule: str
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    clip_norm: float
    no_decay: tuple[str, ...]
    layer_decay: float = 1.0
    frozen_layers: int = 0

    def __post_init__(self):
        for what, name, table in (
            ("optimizer", self.name, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if name not in table:
                raise ValueError(f"Unknown {what} {name!r}. Available: {', '.join(table)}.")


def bert_linear(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """The released code's: a line to 0 that starts at step 0, and instead of it the warm-up.

    At the end of the warm-up the rate drops a little: with a peak of 1e-4, a million steps and
    10,000 of warm-up it is 9.999e-5 at step 9,999 and 9.9e-5 at step 10,000.
    """
    decay = lambda step: peak * (num_steps - step) / num_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def linear(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up to the peak, then a line that reaches 0 at the last step."""
    decay_steps = max(1, num_steps - warmup_steps)
    decay = lambda step: peak * (num_steps - step) / decay_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def constant(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up, then the peak for ever."""
    del num_steps
    return _after_warmup(lambda step: jnp.full_like(step, peak), peak, warmup_steps)


def _after_warmup(rest: optax.Schedule, peak: float, warmup_steps: int) -> optax.Schedule:
    """peak * step / warmup_steps below `warmup_steps`, then `rest`, never below 0."""

    def schedule(step):
        step = jnp.asarray(step, jnp.float32)
        warmup = peak * step / max(1, warmup_steps)
        return jnp.where(step < warmup_steps, warmup, jnp.maximum(rest(step), 0.0))

    return schedule


SCHEDULES: dict[str, Callable[[float, int, int], optax.Schedule]] = {
    "bert_linear": bert_linear,
    "linear": linear,
    "constant": constant,
}


def bert_adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam as BERT was trained: no bias correction, and the weight decay decoupled."""
    return optax.chain(
        scale_by_uncorrected_adam(config.beta1, config.beta2, config.epsilon),
        _decay(config),
    )


def adamw(config: OptimizerConfig) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter 2019), with bias correction."""
    return optax.chain(
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        _decay(config),
    )


# From the gradient to the direction of the update, before the learning rate.
OPTIMIZERS: dict[str, Callable[[OptimizerConfig], optax.GradientTransformation]] = {
    "bert_adam": bert_adam,
    "adamw": adamw,
}


def make_optimizer(
    config: OptimizerConfig, num_steps: int, warmup_steps: int
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """Builds the whole chain.

    Args:
      config: what to build.
      num_steps: updates of the whole run.
      warmup_steps: the first of them, during which the learning rate rises.

    Returns:
      The transformation from gradients to what is added to the parameters, and its schedule.
    """
    schedule = SCHEDULES[config.schedule](config.learning_rate, num_steps, warmup_steps)
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    stages = [clip, OPTIMIZERS[config.name](config), optax.scale_by_learning_rate(schedule)]
    if config.layer_decay != 1.0:
        stages.append(_by_path(lambda params: depth_factors(params, config.layer_decay)))
    if config.frozen_layers:
        freeze = _by_path(lambda params: trained_mask(params, config.frozen_layers))
        stages = [freeze, *stages, freeze]  # before clipping: they add nothing to the norm
    return optax.chain(*stages), schedule


def scale_by_uncorrected_adam(
    beta1: float, beta2: float, epsilon: float
) -> optax.GradientTransformation:
    """m / (sqrt(v) + epsilon) with the plain moving averages m and v of g and g^2."""

    def init(params: Any) -> Any:
        return optax.scale_by_adam().init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        mu = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mu, updates)
        nu = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.nu, updates)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        count = optax.safe_increment(state.count)
        return updates, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def _decay(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adds weight_decay * parameter, apart from the moments (decoupled)."""
    return optax.add_decayed_weights(
        config.weight_decay, mask=lambda params: decay_mask(params, config.no_decay)
    )


def decay_mask(params: Any, no_decay: tuple[str, ...]) -> Any:
    """For each parameter whether it decays: none of the patterns is found in its path.

    Paths look like "bert/encoder/layer_0/attention/query/kernel".
    """
    pattern = re.compile("|".join(no_decay)) if no_decay else None

    def decays(path, _):
        name = "/".join(str(getattr(key, "key", key)) for key in path)
        return pattern is None or pattern.search(name) is None

    return jax.tree_util.tree_map_with_path(decays, params)


def _by_path(factors_of: Callable[[Any], Any]) -> optax.GradientTransformation:
    """Multiplies each update by a number of its own; by 0 it is nothing, not even NaN."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params

        def scale(update, factor):
            return update * factor if factor else jnp.zeros_like(update)

        return jax.tree.map(scale, updates, factors_of(updates)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def depth_factors(params: Any, layer_decay: float) -> Any:
    """Factor of each parameter's learning rate: layer_decay for each layer that is above it.

    1 for what stands on the encoder, layer_decay for its last layer, and so on down to the
    embeddings (Howard & Ruder 2018, section 3.2, "discriminative fine-tuning").
    """
    names = jax.tree.leaves(_names(params))
    top = 1 + max(map(_depth, names), default=0)
    above = jax.tree.map(
        lambda name: top - (_depth(name) if _is_encoder(name) else top), _names(params)
    )
    return jax.tree.map(lambda count: layer_decay**count, above)


def trained_mask(params: Any, frozen_layers: int) -> Any:
    """1 for each parameter that is trained; 0 for the embeddings and the first layers.

    -1: nothing of "bert/" is trained.
    """

    def is_trained(name: str) -> int:
        if frozen_layers == -1:
            return int(not name.startswith("bert/"))
        return int(not _is_encoder(name) or _depth(name) > frozen_layers)

    return jax.tree.map(is_trained, _names(params))


def _names(params: Any) -> Any:
    def name(path, _):
        return "/".join(str(getattr(key, "key", key)) for key in path)

    return jax.tree_util.tree_map_with_path(name, params)


def _is_encoder(name: str) -> bool:
    return name.startswith(("bert/embeddings/", "bert/encoder/"))


def _depth(name: str) -> int:
    """0 for the embeddings, n for the n-th layer; 0 for what is neither."""
    found = re.search(r"/layer_(\d+)/", name)
    return int(found[1]) + 1 if found else 0
