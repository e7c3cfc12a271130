"""The optimizers and schedules of BERT, GPT and ELMo, and the usual alternatives.

An update is, in this order: clip the gradient by its global norm, a row of OPTIMIZERS, which also
adds the weight decay, multiply by the learning rate of the step, as in `optimization.py` of
google-research/bert.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.devices.trees import map_paths


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Settings of the optimizer; bert_jax/config/defaults.py describes the fields.

    `encoder` is the top-level name of the encoder's parameters.

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
    encoder: str
    layer_decay: float = 1.0
    frozen_layers: int = 0
    initial_accumulator: float = 1.0

    def __post_init__(self):
        for what, name, table in (
            ("optimizer", self.name, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if name not in table:
                raise ValueError(f"Unknown {what} {name!r}. Available: {', '.join(table)}.")


def bert_linear(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """The released code's: linear decay from step 0 to 0, replaced by the warm-up at its start.

    The rate drops slightly at the end of the warm-up: with a peak of 1e-4, a million steps and
    10,000 of warm-up it is 9.999e-5 at step 9,999 and 9.9e-5 at step 10,000.
    """
    decay = lambda step: peak * (num_steps - step) / num_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def linear(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up to the peak, then linear decay to 0 at the last step."""
    decay_steps = max(1, num_steps - warmup_steps)
    decay = lambda step: peak * (num_steps - step) / decay_steps  # noqa: E731
    return _after_warmup(decay, peak, warmup_steps)


def constant(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up, then the constant peak."""
    del num_steps
    return _after_warmup(lambda step: jnp.full_like(step, peak), peak, warmup_steps)


def cosine(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """Warm-up to the peak, then half a cosine to 0 at the last step (Loshchilov & Hutter 2017)."""
    decay_steps = max(1, num_steps - warmup_steps)
    return _after_warmup(
        lambda step: peak * _half_cosine((num_steps - step) / decay_steps), peak, warmup_steps
    )


def gpt_cosine(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """`warmup_cosine` of GPT's `opt.py`: the cosine begins at step 0, as the line of bert_linear.

    The rate drops slightly at the end of the warm-up.
    """
    return _after_warmup(
        lambda step: peak * _half_cosine((num_steps - step) / num_steps), peak, warmup_steps
    )


def gpt_linear(peak: float, num_steps: int, warmup_steps: int) -> optax.Schedule:
    """`warmup_linear` of GPT's `opt.py`: linear decay from step 0 to 0, also during the warm-up.

    With x = step / num_steps, the rate is peak * (1 - x), times step / warmup_steps below
    `warmup_steps`; so the peak itself is never reached.
    """
    risen = constant(peak, num_steps, warmup_steps)
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


SCHEDULES: dict[str, Callable[[float, int, int], optax.Schedule]] = {
    "bert_linear": bert_linear,
    "linear": linear,
    "constant": constant,
    "cosine": cosine,
    "gpt_linear": gpt_linear,
    "gpt_cosine": gpt_cosine,
}


def bert_adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam as in the released code: no bias correction, decoupled weight decay."""
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


def gpt_adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam as in GPT's `opt.py`: the correction of the bias is a factor of the learning rate.

    The factor sqrt(1 - beta2^t) / (1 - beta1^t) multiplies the decoupled weight decay too, and
    epsilon is added to the root that is not corrected. Only parameters of two or more dimensions
    decay, of those that `no_decay` leaves.
    """

    def decays(params: Any) -> Any:
        mask = decay_mask(params, config.no_decay)
        return jax.tree.map(lambda is_left, param: is_left and param.ndim > 1, mask, params)

    def correction(step: Any) -> jax.Array:
        count = jnp.asarray(step + 1, jnp.float32)
        return jnp.sqrt(1 - config.beta2**count) / (1 - config.beta1**count)

    return optax.chain(
        scale_by_uncorrected_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, mask=decays),
        optax.scale_by_schedule(correction),
    )


def adagrad(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adagrad (Duchi et al. 2011) as in TensorFlow: g / sqrt(a), where a starts above 0.

    The accumulator a is `initial_accumulator` plus the sum of g^2, that of the step included; there
    is no epsilon. bilm-tf starts from 1.0. The weight decay is decoupled.
    """
    return optax.chain(
        optax.scale_by_rss(initial_accumulator_value=config.initial_accumulator, eps=0.0),
        _decay(config),
    )


# From the gradient to the direction of the update, before the learning rate.
OPTIMIZERS: dict[str, Callable[[OptimizerConfig], optax.GradientTransformation]] = {
    "bert_adam": bert_adam,
    "adamw": adamw,
    "gpt_adam": gpt_adam,
    "adagrad": adagrad,
}


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
    """
    schedule = SCHEDULES[config.schedule](config.learning_rate, num_steps, warmup_steps)
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
    """Adds weight_decay * parameter after the moments (decoupled)."""
    return optax.add_decayed_weights(
        config.weight_decay, mask=lambda params: decay_mask(params, config.no_decay)
    )


def decay_mask(params: Any, no_decay: tuple[str, ...]) -> Any:
    """Returns for each parameter whether it decays: True if no pattern matches in its path.

    Paths look like "bert/encoder/layer_0/attention/query/kernel".
    """
    pattern = re.compile("|".join(no_decay)) if no_decay else None
    return map_paths(lambda name: pattern is None or pattern.search(name) is None, params)


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
