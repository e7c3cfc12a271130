"""Chooses multi-token units to mask: words or phrases, each whole or not at all.

A unit is a run of candidates from one start to the next. Units come in random order, by sorting,
and each is taken if it still fits into the rest of its example's budget.
"""

import dataclasses

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The properties of each token of a row.

    Attributes:
      example_ids: int32[batch, seq].
      is_candidate: bool[batch, seq], whether the token may be chosen.
      same: bool[batch, seq, seq], whether two positions belong to the same example.
      budget: int32[batch, seq], number of predictions in the token's example; unused for
        `bernoulli`.
      num_examples: maximum number of examples in a row.
    """

    example_ids: jax.Array
    is_candidate: jax.Array
    same: jax.Array
    budget: jax.Array
    num_examples: int


def choose_phrases(
    order: jax.Array, tokens: Tokens, mask_units: jax.Array, weights_by_number: tuple[float, ...]
) -> jax.Array:
    """bool[batch, seq]: whole phrases and words, by weight, leaving out those that no longer fit.

    Units are ordered by -log(1 - u) / weight, where u is a unit's random bits as a fraction: each
    next unit then has a probability proportional to its weight among those that are left
    (exponential race). With equal weights, this is the order of the bits, as for words.
    """
    starts = tokens.is_candidate & (opens_example(tokens) | (mask_units > 0))
    if all(weight == 1 for weight in weights_by_number):
        return choose_units((order,), tokens, starts)
    # At the start of an example, a piece that continues a word begins one.
    numbers = jnp.maximum(mask_units.astype(jnp.int32), 1) - 1
    weights = jnp.asarray(weights_by_number, jnp.float32)[numbers]
    waiting = -jnp.log1p(-order.astype(jnp.float32) * 2.0**-32)
    race = jnp.where(weights > 0, waiting / jnp.where(weights > 0, weights, 1), jnp.inf)
    # The bits break ties in float32.
    return choose_units((order, race), tokens, starts, weights > 0)


def opens_example(tokens: Tokens) -> jax.Array:
    """bool[batch, seq]: the first candidate of each example."""
    candidate, place = tokens.is_candidate, jnp.arange(tokens.is_candidate.shape[1])
    earlier = (place[None, :] < place[:, None])[None]
    return candidate & ~(tokens.same & candidate[:, None] & earlier).any(-1)


def choose_units(
    order: tuple[jax.Array, ...],
    tokens: Tokens,
    starts: jax.Array,
    allowed: jax.Array | None = None,
) -> jax.Array:
    """bool[batch, seq]: whole units, each from a start to the next, one after the other.

    Args:
      order: sort keys of the units, [batch, seq] each; the last one is the primary key.
      tokens: tokens of the rows.
      starts: bool[batch, seq], the first token of each unit.
      allowed: bool[batch, seq], at a start whether the unit may be chosen; None: all may.
    """
    candidate = tokens.is_candidate
    place = jnp.broadcast_to(jnp.arange(candidate.shape[1])[None], candidate.shape)
    unit = jnp.cumsum(starts, axis=1)
    in_unit = (unit[:, :, None] == unit[:, None, :]) & candidate[:, None]
    length = jnp.where(starts if allowed is None else starts & allowed, in_unit.sum(-1), 0)
    turn = jnp.lexsort((place, *order, ~starts), axis=1)
    length, budget, example = (
        jnp.take_along_axis(x, turn, axis=1) for x in (length, tokens.budget, tokens.example_ids)
    )
    fits = _fill_greedily(length, budget, example, tokens.num_examples)
    fits = jnp.take_along_axis(fits, jnp.argsort(turn, axis=1), axis=1)
    return candidate & jnp.take_along_axis(fits, latest(starts), axis=1)


def latest(flags: jax.Array) -> jax.Array:
    """int32[batch, seq]: position of the latest flag up to each place (0 before the first one)."""
    return jax.lax.cummax(jnp.where(flags, jnp.arange(flags.shape[1])[None], 0), axis=1)


def _fill_greedily(
    length: jax.Array, budget: jax.Array, example: jax.Array, num_examples: int
) -> jax.Array:
    """bool[batch, n]: which items are taken, one by one, if they fit in their example's budget.

    The arrays are int32[batch, n], in the order in which the items come; length 0 means no item.
    """

    def take(taken, item):
        size, limit, of = item
        mine = of[:, None] == jnp.arange(taken.shape[1])[None]
        total = (taken * mine).sum(-1) + size
        fits = (size > 0) & (total <= limit)
        return taken + jnp.where(fits, size, 0)[:, None] * mine, fits

    nothing = jnp.zeros((length.shape[0], num_examples + 1), jnp.int32)  # [:, 0] is for padding
    _, fits = jax.lax.scan(take, nothing, (length.T, budget.T, example.T))
    return fits.T
