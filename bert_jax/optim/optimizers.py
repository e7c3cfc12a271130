"""The optimizers: from the gradient to the direction of the update, weight decay included."""

import re
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices.trees import map_paths
from bert_jax.optim.muon import scale_by_muon


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
    """Adam as in GPT's `opt.py`: the bias correction is a factor of the learning rate.

    The factor sqrt(1 - beta2^t) / (1 - beta1^t) multiplies the decoupled weight decay too, and
    epsilon is added to the uncorrected root. Of the parameters that `no_decay` leaves, only those
    with two or more dimensions decay.
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

    The accumulator a is `initial_accumulator` plus the sum of g^2, the current step included; there
    is no epsilon. bilm-tf starts from 1.0. The weight decay is decoupled.
    """
    return optax.chain(
        optax.scale_by_rss(initial_accumulator_value=config.initial_accumulator, eps=0.0),
        _decay(config),
    )


def adafactor(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adafactor (Shazeer & Stern 2018): second moments of rows and columns instead of elements.

    As in section 9: beta2 of step t is 1 - t^-0.8, the update is clipped to a root mean square of 1
    and multiplied by that of the parameter, at least 1e-3, and there is no momentum. The learning
    rate is thus relative; 1e-2 is the authors' largest. Matrices whose smaller dimension is below
    128, and vectors, have one moment per element, as in their code.
    """
    return optax.chain(
        optax.scale_by_factored_rms(decay_rate=0.8, min_dim_size_to_factor=128),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(1e-3),
        _decay(config),
    )


def lamb(config: OptimizerConfig) -> optax.GradientTransformation:
    """LAMB (You et al. 2020): AdamW, with each direction scaled to the norm of its parameter.

    Parameters that do not decay keep the direction of Adam, as in the authors' code.
    """
    return optax.chain(
        adamw(config),
        optax.masked(
            optax.scale_by_trust_ratio(), lambda params: decay_mask(params, config.no_decay)
        ),
    )


def muon(config: OptimizerConfig) -> optax.GradientTransformation:
    """Muon (Jordan et al. 2024) for the matrices of the encoder's layers, AdamW for the others."""

    def kinds(params: Any) -> Any:
        in_layer = map_paths(lambda name: _is_layer_matrix(name, config.encoder), params)
        is_muon = lambda inside, param: inside and param.ndim == 2  # noqa: E731
        return jax.tree.map(
            lambda inside, param: "muon" if is_muon(inside, param) else "adam", in_layer, params
        )

    directions: dict[Hashable, optax.GradientTransformation] = {
        "muon": scale_by_muon(),
        "adam": optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
    }
    return optax.chain(optax.partition(directions, kinds), _decay(config))


def _is_layer_matrix(name: str, encoder: str) -> bool:
    return name.startswith(f"{encoder}/") and "/layer_" in name and name.endswith("/kernel")


# From the gradient to the direction of the update, before the learning rate.
OPTIMIZERS: dict[str, Callable[[OptimizerConfig], optax.GradientTransformation]] = {
    "bert_adam": bert_adam,
    "adamw": adamw,
    "gpt_adam": gpt_adam,
    "adagrad": adagrad,
    "adafactor": adafactor,
    "lamb": lamb,
    "muon": muon,
}


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
