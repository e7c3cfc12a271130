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
from bert_jax.models.task_heads import IMPOSSIBLE
from bert_jax.text.lexicon import PHRASE

# Logits of a causal language model that are in memory at a time, over all devices: 512 MiB. More
# positions are processed one part after the other.
MOST_LOGITS = 1 << 27


@flax.struct.dataclass
class Sum:
    """A mean as its two parts: a weighted sum and the sum of the weights, float32[] each.

    BERT's released code divides by the denominator + 1e-5; here it is the denominator itself, 1 if
    it is 0. For one single prediction that is 1e-5 (relative) different, and for a real batch below
    float precision.

    Attributes:
      numerator: of the mean.
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


def masked_lm(logits: jax.Array, batch: Batch) -> Sums:
    """Cross-entropy and accuracy of the masked tokens.

    Args:
      logits: float32[batch, predictions, vocab].
      batch: int32[batch, predictions] `masked_lm_ids`, float32 `masked_lm_weights`.

    Returns:
      `masked_lm_loss` in nats and `masked_lm_accuracy`.
    """
    return _classify("masked_lm", logits, batch["masked_lm_ids"], batch["masked_lm_weights"])


def masked_lm_bits(sums: Sums, batch: Batch, id_characters: jax.Array) -> Sums:
    """The loss of masked tokens per character, which can be compared between vocabularies.

    Args:
      sums: `masked_lm_loss`.
      batch: as `masked_lm`.
      id_characters: int32[vocab], characters of the piece of each id.

    Returns:
      `masked_lm_bits_per_character`.
    """
    characters = id_characters[batch["masked_lm_ids"]] * batch["masked_lm_weights"]
    bits = sums["masked_lm_loss"].numerator / np.log(2)
    return {"masked_lm_bits_per_character": metric(bits, characters.sum())}


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


def causal_lm(scores: WordScores, batch: Batch) -> Sums:
    """Cross-entropy and accuracy of the token after each position.

    Args:
      scores: of float[batch, seq, hidden] features.
      batch: see `next_tokens`.

    Returns:
      `causal_lm_loss` in nats and `causal_lm_accuracy`.
    """
    labels, weights = next_tokens(batch)
    losses, hits = cross_entropy_of_scores(scores, labels)
    total = weights.sum()
    return {
        "causal_lm_loss": Sum((losses * weights).sum(), total),
        "causal_lm_accuracy": metric((hits * weights).sum(), total),
    }


def cross_entropy_of_scores(
    scores: WordScores, labels: jax.Array, most_logits: int = MOST_LOGITS
) -> tuple[jax.Array, jax.Array]:
    """`cross_entropy` of the logits of `scores`, with at most about `most_logits` in memory.

    With more logits, positions are processed in equal parts of the sequence, one after the other,
    and the backward pass computes the logits of a part again.

    Args:
      scores: of float[batch, seq, hidden] features.
      labels: int32[batch, seq].
      most_logits: of a part, over all devices; a part has at least one position of each row.

    Returns:
      float32[batch, seq] losses in nats; float32[batch, seq] hits.
    """
    rows, seq, _ = scores.features.shape
    per_part = max(1, most_logits // (rows * scores.table.shape[0]))
    num_parts = -(-seq // per_part)
    if num_parts == 1:
        return cross_entropy(scores.logits(), labels)
    length = -(-seq // num_parts)

    def parts_of(array: jax.Array) -> jax.Array:
        """[batch, seq, ...] -> [parts, batch, length, ...], filled up with zeros."""
        padding = [(0, 0), (0, num_parts * length - seq)] + [(0, 0)] * (array.ndim - 2)
        split = jnp.pad(array, padding).reshape(rows, num_parts, length, *array.shape[2:])
        return jnp.swapaxes(split, 0, 1)

    # The table is an argument: what a rematerialized function closes over would be kept.
    @jax.checkpoint
    def part(table, bias, features, labels):
        words = dataclasses.replace(scores, features=features, table=table, bias=bias)
        return cross_entropy(words.logits(), labels)

    def step(carry, inputs):
        return carry, part(scores.table, scores.bias, *inputs)

    _, outputs = jax.lax.scan(step, None, (parts_of(scores.features), parts_of(labels)))
    losses, hits = (jnp.swapaxes(x, 0, 1).reshape(rows, -1)[:, :seq] for x in outputs)
    return losses, hits


def masked_phrases(batch: Batch) -> Sum:
    """Returns the share of the phrases that are masked.

    Args:
      batch: int8[batch, seq] `mask_units` (2 or more: begins a phrase), int32[batch, predictions]
        `masked_lm_positions`, float32 `masked_lm_weights`.
    """
    begins = batch["mask_units"] >= PHRASE
    masked = jnp.take_along_axis(begins, batch["masked_lm_positions"], axis=1)
    numerator = (masked * batch["masked_lm_weights"]).sum()
    return metric(numerator, begins.sum().astype(jnp.float32))


def classification(logits: jax.Array, batch: Batch) -> Sums:
    """Cross-entropy and accuracy of one class of several, for each example or each word.

    Args:
      logits: float32[..., classes].
      batch: int32[...] `labels`, float32[...] `weights`.
    """
    return _classify("task", logits, batch["labels"], batch["weights"])


def multi_label(logits: jax.Array, batch: Batch) -> Sums:
    """Binary cross-entropy, the mean over the classes, of any number of classes.

    Args:
      logits: float32[..., classes].
      batch: float32[..., classes] `labels` of 0 and 1, float32[...] `weights`.
    """
    labels, weights = batch["labels"], batch["weights"]
    losses = jnp.logaddexp(0.0, logits) - labels * logits
    return {"task_loss": Sum((losses.mean(-1) * weights).sum(), weights.sum())}


def regression(values: jax.Array, batch: Batch) -> Sums:
    """Squared error.

    Args:
      values: float32[...].
      batch: float32[...] `labels` and `weights`.
    """
    weights = batch["weights"]
    return {"task_loss": Sum(((values - batch["labels"]) ** 2 * weights).sum(), weights.sum())}


def span(start_logits: jax.Array, end_logits: jax.Array, batch: Batch) -> Sums:
    """The mean of the cross-entropies of the start and of the end, as in `run_squad.py`.

    Args:
      start_logits, end_logits: float32[batch, seq].
      batch: int32[batch] `start_positions` and `end_positions`, float32[batch] `weights`; all of
        them [batch, examples] if rows have several examples, with int32[batch, seq] `example_ids`.

    Returns:
      `task_loss`, and `task_accuracy`: how often both positions are right.
    """
    weights = batch["weights"]
    if weights.ndim == 2:  # an answer is in its own example
        numbers = 1 + jnp.arange(weights.shape[1], dtype=jnp.int32)
        is_here = batch["example_ids"][:, None, :] == numbers[None, :, None]
        start_logits, end_logits = (
            jnp.where(is_here, logits[:, None], IMPOSSIBLE) for logits in (start_logits, end_logits)
        )
    start_losses, start_hits = cross_entropy(start_logits, batch["start_positions"])
    end_losses, end_hits = cross_entropy(end_logits, batch["end_positions"])
    losses = (start_losses + end_losses) / 2
    return {
        "task_loss": Sum((losses * weights).sum(), weights.sum()),
        "task_accuracy": metric((start_hits * end_hits * weights).sum(), weights.sum()),
    }


def _classify(name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array) -> Sums:
    # As a matrix: TPUs would copy logits [batch, n, classes] whose n is no multiple of 8.
    rows = logits.reshape(-1, logits.shape[-1])
    losses, hits = (x.reshape(labels.shape) for x in cross_entropy(rows, labels.reshape(-1)))
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
