"""A linear-chain conditional random field over the tags of a sentence (Lafferty et al. 2001).

The score of tags t_1 ... t_n is start[t_1] + sum_i logits[i, t_i] + sum_i transitions[t_i, t_i+1] +
end[t_n]. Everything is exact: the sum over all tag sequences by the forward algorithm, the best one
by Viterbi's.

Shape suffixes: B batch, W words, C classes.
"""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Crf:
    """The parameters that relate neighbouring tags.

    Attributes:
      transitions: float32[classes, classes], from row to column.
      start: float32[classes], of the first word's tag.
      end: float32[classes], of the last word's tag.
    """

    transitions: jax.Array
    start: jax.Array
    end: jax.Array


def log_likelihood(
    crf: Crf, logits_BWC: jax.Array, tags_BW: jax.Array, is_word_BW: jax.Array
) -> jax.Array:
    """log p(tags | logits) of each sentence, float32[batch]; 0 for one without words.

    Args:
      crf: the parameters.
      logits_BWC: float32 scores of the tags of each word.
      tags_BW: int32; values where there is no word have no effect.
      is_word_BW: bool; the words come first.
    """
    score_B = score(crf, logits_BWC, tags_BW, is_word_BW)
    log_likelihood_B = score_B - log_partition(crf, logits_BWC, is_word_BW)
    return jnp.where(is_word_BW[:, 0], log_likelihood_B, 0.0)


def score(crf: Crf, logits_BWC: jax.Array, tags_BW: jax.Array, is_word_BW: jax.Array) -> jax.Array:
    """The score of one tag sequence of each sentence, float32[batch]."""
    here_BW = jnp.take_along_axis(logits_BWC, tags_BW[:, :, None], axis=2)[..., 0]
    steps_BW = crf.transitions[tags_BW[:, :-1], tags_BW[:, 1:]]
    last_B = jnp.maximum(is_word_BW.sum(1) - 1, 0)
    last_tag_B = jnp.take_along_axis(tags_BW, last_B[:, None], axis=1)[:, 0]
    return (
        crf.start[tags_BW[:, 0]]
        + jnp.where(is_word_BW, here_BW, 0.0).sum(1)
        + jnp.where(is_word_BW[:, 1:], steps_BW, 0.0).sum(1)
        + crf.end[last_tag_B]
    )


def log_partition(crf: Crf, logits_BWC: jax.Array, is_word_BW: jax.Array) -> jax.Array:
    """log of the sum over all tag sequences of exp(score), float32[batch]."""

    def step(alpha_BC, word):
        logits_BC, is_word_B = word
        paths_BCC = alpha_BC[:, :, None] + crf.transitions[None]
        new_BC = jax.nn.logsumexp(paths_BCC, axis=1) + logits_BC
        return jnp.where(is_word_B[:, None], new_BC, alpha_BC), None

    first_BC = crf.start[None] + logits_BWC[:, 0]
    rest = (jnp.swapaxes(logits_BWC, 0, 1)[1:], is_word_BW.T[1:])
    alpha_BC, _ = jax.lax.scan(step, first_BC, rest)
    return jax.nn.logsumexp(alpha_BC + crf.end[None], axis=-1)


def marginals(crf: Crf, logits_BWC: jax.Array, is_word_BW: jax.Array) -> jax.Array:
    """p(tag of a word | logits) over all tag sequences, float32[batch, words, classes].

    The gradient of the log-partition function; 0 where there is no word.
    """
    return jax.grad(lambda logits: log_partition(crf, logits, is_word_BW).sum())(logits_BWC)


def decode(crf: Crf, logits_BWC: jax.Array, is_word_BW: jax.Array) -> jax.Array:
    """The best tag sequence of each sentence (Viterbi), int32[batch, words].

    After a sentence's last word its last tag is repeated.
    """

    def forward(best_BC, word):
        logits_BC, is_word_B = word
        paths_BCC = best_BC[:, :, None] + crf.transitions[None]
        new_BC = paths_BCC.max(axis=1) + logits_BC
        # Past the end every tag points to itself, so that backtracking passes through.
        stay_BC = jnp.broadcast_to(jnp.arange(best_BC.shape[1])[None], best_BC.shape)
        come_from_BC = jnp.where(is_word_B[:, None], paths_BCC.argmax(axis=1), stay_BC)
        return jnp.where(is_word_B[:, None], new_BC, best_BC), come_from_BC

    def backward(tag_B, come_from_BC):
        return jnp.take_along_axis(come_from_BC, tag_B[:, None], axis=1)[:, 0], tag_B

    first_BC = crf.start[None] + logits_BWC[:, 0]
    rest = (jnp.swapaxes(logits_BWC, 0, 1)[1:], is_word_BW.T[1:])
    best_BC, come_from_WBC = jax.lax.scan(forward, first_BC, rest)
    last_B = (best_BC + crf.end[None]).argmax(axis=-1)
    first_B, tags_WB = jax.lax.scan(backward, last_B, come_from_WBC, reverse=True)
    return jnp.concatenate([first_B[None], tags_WB]).T.astype(jnp.int32)
