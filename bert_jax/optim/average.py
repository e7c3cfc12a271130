"""The mean of the parameters after the last steps of a run, kept in the optimizer's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class AverageState(NamedTuple):
    """The state of `average_params`.

    Attributes:
      inner: state of the optimizer.
      count: int32[], steps so far.
      mean: a tree like the parameters: their mean over the averaged steps so far; before those, the
        parameters themselves.
    """

    inner: Any
    count: jax.Array
    mean: Any


def average_params(
    tx: optax.GradientTransformation, skipped: int
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer with the same updates that also averages the new parameters.

    All steps after the first `skipped` have equal weight (Izmailov et al. 2018, "stochastic weight
    averaging"; for the last steps of pre-training: Hägele et al. 2024, section 4).

    Args:
      tx: the optimizer, learning rate included.
      skipped: number of first steps whose parameters are left out of the mean.
    """

    def init(params: Any) -> AverageState:
        # Copies, since a step donates the buffers of both.
        mean = jax.tree.map(jnp.copy, params)
        return AverageState(tx.init(params), jnp.zeros((), jnp.int32), mean)

    update_inner = optax.with_extra_args_support(tx).update

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple[Any, Any]:
        updates, inner = update_inner(updates, state.inner, params, **extra_args)
        count: Any = optax.safe_increment(state.count)
        number = count - skipped

        def add(mean, param):
            return jnp.where(number <= 1, param, mean + (param - mean) / number)

        mean = jax.tree.map(add, state.mean, optax.apply_updates(params, updates))
        return updates, AverageState(inner, count, mean)

    return optax.GradientTransformationExtraArgs(init, update)


def swap_average(params: Any, opt_state: Any) -> tuple[Any, Any]:
    """Exchanges the parameters with the mean in the optimizer's state, if it has one.

    The mean is evaluated and saved in place of the parameters; a second call restores the
    parameters that are trained.

    Args:
      params: the parameters.
      opt_state: state of an optimizer of `make_optimizer`.
    """
    if not isinstance(opt_state, AverageState):
        return params, opt_state
    return opt_state.mean, opt_state._replace(mean=params)
