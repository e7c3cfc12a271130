"""How the next word is chosen from a model's logits: greedy, temperature, top-k, top-p."""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """A choice of the next word. Top-k comes after the temperature, top-p after top-k.

    Attributes:
      greedy: the most probable word, the first one of equals.
      temperature: divides the logits; below 1 the distribution is sharper, above 1 flatter.
      top_k: only this many of the most probable words; 0: all.
      top_p: only the most probable words up to the one with which their probability reaches this
        (Holtzman et al. 2020, nucleus sampling); 1: all.

    Raises:
      UserError: for a value that is not allowed, or a value that has no effect.
    """

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 < self.temperature < float("inf"):
            raise UserError(
                f"--temperature={self.temperature} must be above 0; for the most probable words,"
                " give --greedy."
            )
        if self.top_k < 0:
            raise UserError(f"--top_k={self.top_k} must be at least 1, or 0 for all words.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top_p={self.top_p} must be above 0, and at most 1 for all words.")
        if self.greedy and (self.temperature, self.top_k, self.top_p) != (1.0, 0, 1.0):
            raise UserError(
                "--greedy takes the most probable word: leave out --temperature, --top_k and"
                " --top_p."
            )


def choose(sampling: Sampling, keys: jax.Array, logits: jax.Array) -> jax.Array:
    """Returns the next word of each row, int32[batch].

    Args:
      sampling: settings of the choice.
      keys: [batch], one random key for each row.
      logits: float32[batch, words]; a word with -inf is never chosen.
    """
    if sampling.greedy:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    chosen = jax.vmap(jax.random.categorical)(keys, restrict(sampling, logits))
    return chosen.astype(jnp.int32)


def restrict(sampling: Sampling, logits: jax.Array) -> jax.Array:
    """Returns logits of the distribution that is sampled, -inf for words that are left out.

    Of words with equal logits, the first ones are kept.

    Args:
      sampling: temperature, top-k and top-p.
      logits: float32[batch, words].
    """
    logits = logits / sampling.temperature
    words = logits.shape[-1]
    if sampling.top_k in range(1, words) or sampling.top_p < 1:
        order = jnp.argsort(-logits, axis=-1, stable=True)
        place = jnp.argsort(order, axis=-1)  # of each word in that order
        kept = place < (sampling.top_k or words)
        if sampling.top_p < 1:
            probs = jax.nn.softmax(jnp.where(kept, logits, -jnp.inf))
            sorted_probs = jnp.take_along_axis(probs, order, axis=-1)
            before = jnp.cumsum(sorted_probs, axis=-1) - sorted_probs
            kept &= jnp.take_along_axis(before, place, axis=-1) < sampling.top_p
        logits = jnp.where(kept, logits, -jnp.inf)
    return logits
