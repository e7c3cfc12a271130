"""Which layers of an encoder are read: one table of choices (Devlin et al. 2019, Table 7).

States are a tuple of arrays of the same shape [..., hidden]: the output of the embeddings, then of
each layer, `Encoded.all_hidden`.

    last, second_to_last   one layer
    embeddings             the output of the embeddings
    sum_last_4, sum_all    a sum of layers; `sum_all` leaves out the embeddings
    concat_last_4          four times the features, those of the last layer last
    weighted_sum           of the last n states, with n weights; one more weight than layers
                           includes the embeddings
    scalar_mix             of all layers, with one weight for each, without the embeddings
    mix_last_4             of the last four layers, with one weight for each
    mix_with_embeddings    of every state, with one weight for each (Peters et al. 2018, equation 1)
    all                    every state, on a new second axis
    directions             of an encoder with two directions: the embeddings once, then the forward
                           and the backward half of each layer, on a new second axis
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

States = Sequence[jax.Array]
# Numbers, or float[number of states].
Weights = Sequence[float] | jax.Array


@dataclasses.dataclass(frozen=True)
class LayerChoice:
    """A row of LAYER_CHOICES.

    Attributes:
      min_layers: smallest number of layers of the encoder.
      features: function (states, weights, last_first) -> features; see `choose`.
      num_weights: function (number of states) -> number of weights that a head learns; 0: none.
    """

    min_layers: int
    features: Callable[[States, Weights, bool], jax.Array]
    num_weights: Callable[[int], int] = lambda num_states: 0


def choose(
    name: str, states: States, *, weights: Weights = (), last_first: bool = False
) -> jax.Array:
    """Returns the features of a choice.

    Args:
      name: a key of LAYER_CHOICES.
      states: states of the embeddings and each layer, float[batch, seq, hidden] each.
      weights: one for each state that a `weighted_sum` or a mix adds; other choices ignore them.
      last_first: sums start with the last state and continue from the lowest; otherwise they run
        from the lowest to the last. The order decides the last bit of a floating-point sum: taggers
        have always used the former, extracted features the latter.

    Returns:
      float[batch, seq, features]; for `all` float[batch, layers + 1, seq, hidden],
      for `directions` float[batch, 2 * layers + 1, seq, hidden / 2].
    """
    return LAYER_CHOICES[name].features(states, weights, last_first)


def _sum(states: States, last_first: bool) -> Any:
    if last_first:
        return sum(states[:-1], states[-1])
    return sum(states[1:], states[0])


def _weighted_sum(states: States, weights: Weights, last_first: bool) -> Any:
    last = states[-len(weights) :]
    return _sum([w * state for w, state in zip(weights, last, strict=True)], last_first)


def _directions(states: States) -> jax.Array:
    """The two halves of the embeddings are equal: both directions read the same."""
    halves = [half for state in states for half in jnp.split(state, 2, axis=-1)]
    return jnp.stack(halves[1:], axis=1)


def _mix(states: States, weights: Weights) -> Any:
    """Sums from the lowest state upwards, whatever `last_first` is."""
    return sum(w * state for w, state in zip(weights, states, strict=True))


LAYER_CHOICES: dict[str, LayerChoice] = {
    "last": LayerChoice(1, lambda states, *_: states[-1]),
    "embeddings": LayerChoice(1, lambda states, *_: states[0]),
    "second_to_last": LayerChoice(2, lambda states, *_: states[-2]),
    "sum_last_4": LayerChoice(4, lambda states, _, last_first: _sum(states[-4:], last_first)),
    "concat_last_4": LayerChoice(4, lambda states, *_: jnp.concatenate(states[-4:], axis=-1)),
    "sum_all": LayerChoice(1, lambda states, _, last_first: _sum(states[1:], last_first)),
    "weighted_sum": LayerChoice(1, _weighted_sum),
    "scalar_mix": LayerChoice(1, lambda states, w, _: _mix(states[1:], w), lambda n: n - 1),
    "mix_last_4": LayerChoice(4, lambda states, w, _: _mix(states[-4:], w), lambda n: 4),
    "mix_with_embeddings": LayerChoice(1, lambda states, w, _: _mix(states, w), lambda n: n),
    "all": LayerChoice(1, lambda states, *_: jnp.stack(states, axis=1)),
    "directions": LayerChoice(1, lambda states, *_: _directions(states)),
}
