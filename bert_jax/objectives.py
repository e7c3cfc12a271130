"""From a model's outputs to sums that a loss is made of.

A loss or a score is a numerator and a denominator, both sums over examples, so that parts of a
batch (microbatches, devices, batches of an evaluation) add up exactly; one division comes last.
"""

from collections.abc import Mapping

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

Batch = Mapping[str, jax.Array]


@flax.struct.dataclass
class Sum:
    """A weighted sum and the sum of its weights, float32[] each.

    The released code divides by the sum of weights + 1e-5; here it is the sum itself, which for
    one single prediction is 1e-5 (relative) different and for a real batch below float precision.
    """

    numerator: jax.Array
    denominator: jax.Array


Sums = dict[str, Sum]


def masked_lm(logits: jax.Array, batch: Batch) -> Sums:
    """Cross-entropy and accuracy of the masked tokens.

    Args:
      logits: float32[batch, predictions, vocab].
      batch: int32[batch, predictions] `masked_lm_ids`, float32 `masked_lm_weights`.

    Returns:
      `masked_lm_loss` in nats and `masked_lm_accuracy`.
    """
    return _classify("masked_lm", logits, batch["masked_lm_ids"], batch["masked_lm_weights"])


def next_sentence(logits: jax.Array, batch: Batch) -> Sums:
    """Cross-entropy and accuracy of "is B a random sentence?" (label 1: yes).

    Args:
      logits: float32[batch, examples, 2].
      batch: int32[batch, examples] `next_sentence_labels`, float32 `next_sentence_weights`.

    Returns:
      `next_sentence_loss` in nats and `next_sentence_accuracy`.
    """
    labels, weights = batch["next_sentence_labels"], batch["next_sentence_weights"]
    return _classify("next_sentence", logits, labels, weights)


def _classify(name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    losses, hits = cross_entropy(logits, labels)
    total = weights.sum()
    return {
        f"{name}_loss": Sum((losses * weights).sum(), total),
        f"{name}_accuracy": Sum((hits * weights).sum(), total),
    }


@jax.custom_vjp
def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """-log softmax(logits)[label], and whether no other class has a larger logit.

    The backward pass needs of all that only two numbers for each prediction beside the logits.

    Args:
      logits: float32[..., classes].
      labels: int32[...].

    Returns:
      float32[...] losses in nats; float32[...] hits, 0 or 1, without a gradient.
    """
    return _cross_entropy_forward(logits, labels)[0]


def _cross_entropy_forward(logits, labels):
    label_logits = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    largest = logits.max(axis=-1)
    log_sum = jnp.log(jnp.exp(logits - largest[..., None]).sum(axis=-1))
    hits = (label_logits == largest).astype(jnp.float32)
    return (log_sum - (label_logits - largest), hits), (logits, labels, largest, log_sum)


def _cross_entropy_backward(residuals, gradients):
    logits, labels, largest, log_sum = residuals
    probs = jnp.exp((logits - largest[..., None]) - log_sum[..., None])
    is_label = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    grads = (probs - is_label) * gradients[0][..., None]
    return grads, np.zeros(labels.shape, jax.dtypes.float0)


cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)
