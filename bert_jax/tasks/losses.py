"""From a model's outputs to the sums that form a loss.

A loss or a score is a numerator and a denominator, both sums over examples, so that parts of a
batch (microbatches, devices, batches of an evaluation) add up exactly; the division comes last.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.heads import WordScores
from bert_jax.models.model import Batch

# Maximum number of logits of a causal language model in memory, over all devices: 512 MiB. With
# more, positions are processed one part after the other.
MAX_LOGITS = 1 << 27


@flax.struct.dataclass
class Sum:
    """A mean as its two parts: a weighted sum and the sum of the weights, float32[] each.

    BERT's released code divides by the denominator + 1e-5; here the divisor is the denominator
    itself, or 1 if it is 0. For a single prediction, the relative difference is 1e-5; for a real
    batch, it is below float precision.

    Attributes:
      numerator: the weighted sum.
      denominator: depends on the batch alone, not on the outputs of the model.
      gradient_scale: factor of this mean's gradient; 0: a metric, which is not minimized.
    """

    numerator: jax.Array
    denominator: jax.Array
    gradient_scale: float = flax.struct.field(pytree_node=False, default=1.0)


def metric(numerator: jax.Array, denominator: jax.Array) -> Sum:
    """Returns a mean that is reported, but not minimized."""
    return Sum(numerator, denominator, gradient_scale=0.0)


Sums = dict[str, Sum]


def loss_names(sums: Sums) -> tuple[str, ...]:
    """Returns the names of the means whose sum is minimized."""
    return tuple(name for name, item in sums.items() if item.gradient_scale)


def next_tokens(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Returns what a causal language model predicts: the token after each position.

    Args:
      batch: int32[batch, seq] `input_ids` and `example_ids`.

    Returns:
      int32[batch, seq] ids; float32[batch, seq] weights, 1 where the next position is a token of
      the same example, otherwise 0. The last position has no next one.
    """
    example_ids = batch["example_ids"]
    following = jnp.pad(example_ids[:, 1:], ((0, 0), (0, 1)))
    weights = (following > 0) & (following == example_ids)
    return jnp.pad(batch["input_ids"][:, 1:], ((0, 0), (0, 1))), weights.astype(jnp.float32)


def cross_entropy_of_scores(
    scores: WordScores, labels: jax.Array, max_logits: int = MAX_LOGITS
) -> tuple[jax.Array, jax.Array]:
    """`cross_entropy` of the logits of `scores`, with at most about `max_logits` in memory.

    With more logits, positions are processed in equal parts of the sequence, one after the other,
    and the backward pass recomputes the logits of each part.

    Args:
      scores: function from float[batch, seq, hidden] features to logits.
      labels: int32[batch, seq].
      max_logits: maximum number of logits of a part, over all devices; a part has at least one
        position of each row.

    Returns:
      float32[batch, seq] losses in nats; float32[batch, seq] hits.
    """
    rows, seq, _ = scores.features.shape
    if (num_parts := count_parts(scores, max_logits)) == 1:
        return cross_entropy(scores.logits(), labels)

    # The table is an argument: what a rematerialized function closes over stays in memory.
    @jax.checkpoint
    def part(table, bias, features, labels):
        words = dataclasses.replace(scores, features=features, table=table, bias=bias)
        return cross_entropy(words.logits(), labels)

    def step(carry, inputs):
        return carry, part(scores.table, scores.bias, *inputs)

    parts = tuple(split_positions(x, num_parts) for x in (scores.features, labels))
    _, outputs = jax.lax.scan(step, None, parts)
    losses, hits = (jnp.swapaxes(x, 0, 1).reshape(rows, -1)[:, :seq] for x in outputs)
    return losses, hits


def count_parts(scores: WordScores, max_logits: int) -> int:
    """Returns the number of parts of a sequence with at most about `max_logits` logits each."""
    rows, seq, _ = scores.features.shape
    return -(-seq // max(1, max_logits // (rows * scores.table.shape[0])))


def split_positions(array: jax.Array, num_parts: int) -> jax.Array:
    """[batch, seq, ...] -> [parts, batch, length, ...], padded with zeros."""
    rows, seq = array.shape[:2]
    length = -(-seq // num_parts)
    padding = [(0, 0), (0, num_parts * length - seq)] + [(0, 0)] * (array.ndim - 2)
    split = jnp.pad(array, padding).reshape(rows, num_parts, length, *array.shape[2:])
    return jnp.swapaxes(split, 0, 1)


def classify(name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    """Cross-entropy and accuracy of the choice of one class.

    Args:
      name: name of the results.
      logits: float32[..., classes].
      labels: int32[...].
      weights: float32[...].

    Returns:
      `NAME_loss` in nats and `NAME_accuracy`.
    """
    # As a matrix: TPUs would copy logits [batch, n, classes] whose n is not a multiple of 8.
    rows = logits.reshape(-1, logits.shape[-1])
    losses, hits = (x.reshape(labels.shape) for x in cross_entropy(rows, labels.reshape(-1)))
    return weighted_sums(name, losses, hits, weights)


def weighted_sum(values: jax.Array, weights: jax.Array) -> Sum:
    """Returns the mean of losses with weights of the same shape."""
    return Sum((values * weights).sum(), weights.sum())


def divergence(logits: jax.Array, teacher: jax.Array, temperature: float = 1.0) -> jax.Array:
    """T^2 KL(softmax(teacher / T) || softmax(logits / T)) (Hinton et al. 2015, section 2).

    The gradient is that of the cross-entropy with the teacher's probabilities.

    Args:
      logits: float32[..., classes].
      teacher: float32[..., classes], the teacher's.
      temperature: T.

    Returns:
      float32[...], in nats.
    """
    log_probs, log_targets = (jax.nn.log_softmax(x / temperature) for x in (logits, teacher))
    return temperature**2 * (jnp.exp(log_targets) * (log_targets - log_probs)).sum(-1)


def binary_divergence(logits: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """`divergence` of two classes with the logits 0 and `logits`, float32[...] -> float32[...]."""
    pairs = [jnp.stack([jnp.zeros_like(x), x], axis=-1) for x in (logits, teacher)]
    return divergence(pairs[0], pairs[1], temperature)


def weighted_sums(name: str, losses: jax.Array, hits: jax.Array, weights: jax.Array) -> Sums:
    """Returns `NAME_loss` and `NAME_accuracy` of losses, hits and weights of one shape."""
    total = weights.sum()
    return {
        f"{name}_loss": Sum((losses * weights).sum(), total),
        f"{name}_accuracy": metric((hits * weights).sum(), total),
    }


@jax.custom_vjp
def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """-log softmax(logits)[label], and whether no other class has a larger logit.

    In addition to the logits, the backward pass keeps only two numbers for each prediction.

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
