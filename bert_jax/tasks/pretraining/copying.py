"""Loss and accuracy of masked tokens with a copy head, without the probabilities of all words.

The loss needs the probability of the label. The accuracy needs the most probable word: it has the
largest logit or is copied, so only that word and the words of the example are compared.
"""

import jax
import jax.numpy as jnp

from bert_jax.models.copy_head import Copies, log_mixture
from bert_jax.tasks.losses import cross_entropy


def cross_entropy_of_copies(
    logits: jax.Array, copies: Copies, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`losses.cross_entropy` of the mixture of a softmax and copies.

    Args:
      logits: float32[batch, predictions, words].
      copies: where the words of these slots may be copied from.
      labels: int32[batch, predictions].

    Returns:
      float32[batch, predictions] losses in nats; float32[batch, predictions] hits, 0 or 1, without
      a gradient.
    """
    flat = logits.reshape(-1, logits.shape[-1])
    word_losses = cross_entropy(flat, labels.reshape(-1))[0].reshape(labels.shape)
    is_label = copies.ids[:, None] == labels[:, :, None]  # [B, P, S]
    copied = jnp.where(is_label, copies.attention, 0).sum(-1)
    log_label = log_mixture(-word_losses, copied, copies.gate)
    log_other = _log_of_others(logits, word_losses, copies, labels)
    hits = jax.lax.stop_gradient(log_label) >= jax.lax.stop_gradient(log_other)
    return -log_label, hits.astype(jnp.float32)


def _log_of_others(
    logits: jax.Array, word_losses: jax.Array, copies: Copies, labels: jax.Array
) -> jax.Array:
    """float32[batch, predictions]: above the label's log-probability only if another word's is."""
    ids = copies.ids
    label_logits = jnp.take_along_axis(logits, labels[:, :, None], axis=2)  # [B, P, 1]

    def log_softmax(word_logits):
        # Computed in this order, the label's value is exactly -word_losses.
        return (word_logits - label_logits) - word_losses[:, :, None]

    best_word = log_softmax(logits.max(-1, keepdims=True))[:, :, 0]
    best_word += jax.nn.log_sigmoid(-copies.gate)
    # [B, P, S]: the attention on all positions that hold the word of position s.
    same = (ids[:, :, None] == ids[:, None]).astype(jnp.float32)
    copied = jnp.einsum("bpt,bts->bps", copies.attention, same)
    places = jnp.broadcast_to(ids[:, None], copied.shape)
    log_words = log_softmax(jnp.take_along_axis(logits, places, axis=2))
    log_copied = log_mixture(log_words, copied, copies.gate[:, :, None])
    is_other = ids[:, None] != labels[:, :, None]
    return jnp.maximum(best_word, jnp.where(is_other, log_copied, -jnp.inf).max(-1))
