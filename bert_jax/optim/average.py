"""The mean of the parameters after the last steps of a run, kept in the optimizer's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class AverageState(NamedTuple):
    """The state of `average_params`.

    Attributes:
      inner: state of the optimizer.
      count: int32[], updates so far.
      mean: a tree like the parameters: their mean after the last updates; before those, the
        parameters themselves.
    """

    inner: Any
    count: jax.Array
    mean: Any


def average_params(
    tx: optax.GradientTransformation, skipped: int
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer with the same updates that also averages the new parameters.

    All updates after the first `skipped` count alike (Izmailov et al. 2018, "stochastic weight
    averaging"; of the last steps of pre-training: Hägele et al. 2024, section 4).

    Args:
      tx: the optimizer, learning rate included.
      skipped: updates after which the parameters do not count.
    """

    def init(params: Any) -> AverageState:
        # Copies, since a step gives away the buffers of both.
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

    What is evaluated and saved as parameters is the mean; applied to that, this restores what is
    trained.

    Args:
      params: the parameters.
      opt_state: state of an optimizer of `make_optimizer`.
    """
    if not isinstance(opt_state, AverageState):
        return params, opt_state
    return opt_state.mean, opt_state._replace(mean=params)
