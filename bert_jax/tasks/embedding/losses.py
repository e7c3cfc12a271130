"""Losses of text embeddings; all read cosines.

in_batch            -log softmax(cosines of an anchor with all positives and negatives of the
                    batch / temperature)[its positive]: multiple negatives ranking (Henderson et
                    al. 2017, arXiv 1705.00652), InfoNCE (van den Oord et al. 2018, 1807.03748)
in_batch_symmetric  the mean of in_batch and of the same from positives to anchors (Radford et
                    al. 2021, arXiv 2103.00020)
cosent              log(1 + sum of exp((cosine_i - cosine_j) / temperature) over all pairs i, j
                    with score_i < score_j) (Su 2022, kexue.fm/archives/8847)
cosine_mse          squared difference of the cosine and the score (Reimers and Gurevych 2019,
                    arXiv 1908.10084)
"""

import jax
import jax.numpy as jnp

from bert_jax.models.model import Batch
from bert_jax.models.task_heads import IMPOSSIBLE
from bert_jax.tasks.losses import Sum, Sums, cross_entropy, weighted_sum, weighted_sums

# Losses that read the scores of pairs; the others take pairs without scores.
SCORED = ("cosent", "cosine_mse")
# Minimum of a squared norm, for the vectors of padding.
_SMALLEST = 1e-24


def embedding_loss(
    name: str, kind: str, vectors: jax.Array, batch: Batch, temperature: float
) -> Sums:
    """Returns `NAME_loss` of a whole batch, and `NAME_accuracy` for pairs without scores.

    Args:
      name: name of the results.
      kind: a loss of the list above.
      vectors: float32[batch, texts, features]: anchor, positive and, if there is one, a negative.
      batch: int32[batch, texts] `text_ids`, equal for equal texts; float32[batch] `scores` and
        `weights`, 0 for rows of padding.
      temperature: cosines are divided by it.
    """
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    vectors = vectors * jax.lax.rsqrt(jnp.maximum(square, _SMALLEST))
    if kind in SCORED:
        cosines = jnp.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        if kind == "cosent":
            return {f"{name}_loss": _cosent(cosines / temperature, batch)}
        squares = (cosines - batch["scores"]) ** 2
        return {f"{name}_loss": weighted_sum(squares, batch["weights"])}

    return in_batch_loss(name, kind, dot_products(vectors) / temperature, batch)


def dot_products(vectors: jax.Array) -> jax.Array:
    """Returns the products of anchors with all candidates, float32[batch, candidates].

    The candidates are the positives of all rows, then their negatives.

    Args:
      vectors: float32[batch, texts, features], see `embedding_loss`.
    """
    candidates = jnp.swapaxes(vectors[:, 1:], 0, 1).reshape(-1, vectors.shape[-1])
    return jnp.matmul(vectors[:, 0], candidates.T, precision=jax.lax.Precision.HIGHEST)


def in_batch_loss(name: str, kind: str, logits: jax.Array, batch: Batch) -> Sums:
    """Returns `NAME_loss` and `NAME_accuracy` of in-batch negatives.

    Args:
      name: name of the results.
      kind: `in_batch` or `in_batch_symmetric`.
      logits: float32[batch, candidates], of each anchor with the positives of all rows, then with
        their negatives.
      batch: see `embedding_loss`.
    """
    related = _related(batch["text_ids"])
    losses, hits = _contrast(logits, related, batch["weights"])
    if kind == "in_batch_symmetric":
        rows = len(logits)
        backward, _ = _contrast(logits[:, :rows].T, related[:, :rows].T, batch["weights"])
        losses = (losses + backward) / 2
    return weighted_sums(name, losses, hits, batch["weights"])


def _contrast(
    logits: jax.Array, related: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """float32[batch] losses and hits of the choice of a candidate, float32[batch, candidates].

    The correct candidate of a row has the row's number; candidates that are `related`,
    bool[batch, candidates], or padding are not negatives.
    """
    rows, columns = logits.shape
    is_absent = jnp.tile(weights == 0, columns // rows)[None]
    is_own = jnp.eye(rows, columns, dtype=bool)
    logits = jnp.where((related | is_absent) & ~is_own, IMPOSSIBLE, logits)
    return cross_entropy(logits, jnp.arange(rows, dtype=jnp.int32))


def _related(text_ids: jax.Array) -> jax.Array:
    """bool[batch, candidates]: whether a candidate is as good for an anchor as its own positive.

    They are equal to the anchor itself, or to a positive of it or of an equal anchor.
    """
    anchors, positives = text_ids[:, 0, None], text_ids[:, 1, None]
    candidates = text_ids[:, 1:].T.reshape(1, -1)
    shares = (anchors == anchors.T).astype(jnp.float32)
    equals = (positives == candidates).astype(jnp.float32)
    return (shares @ equals > 0) | (candidates == anchors)


def _cosent(cosines: jax.Array, batch: Batch) -> Sum:
    """The loss of a batch, with the weight of its rows."""
    scores, weights = batch["scores"], batch["weights"]
    is_pair = (scores[:, None] < scores[None]) & (weights[:, None] * weights[None] > 0)
    differences = jnp.where(is_pair, cosines[:, None] - cosines[None], IMPOSSIBLE)
    loss = jax.nn.logsumexp(jnp.append(differences.ravel(), 0.0))
    return Sum(loss * weights.sum(), weights.sum())
