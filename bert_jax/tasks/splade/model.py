"""SPLADE's model: an encoder and its masked-LM head, pooled to a weight for each word."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import make_encoder
from bert_jax.models.heads import LMHead, WordScores
from bert_jax.models.model import Batch, EncoderConfig, complete_batch
from bert_jax.models.pooling import pool
from bert_jax.models.task_heads import EmbeddingOutputs, flat_batch
from bert_jax.tasks.losses import count_parts, split_positions

# Maximum number of logits in memory, over all devices: 128 MiB. For 32 texts of 128 tokens and
# 30,522 words a step needs 389 MiB instead of 1,442, in the same time (2 CPU cores).
MAX_LOGITS = 1 << 25


class SpladeModel(nn.Module):
    """The weights of all words for each text; the parameters are those of pre-training.

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> EmbeddingOutputs:
        """Returns float32[batch, texts, vocab_size] vectors.

        Args:
          batch: what encoders take, with the texts as an axis, int32[batch, texts, seq], or in the
            same row, int32[batch, seq].
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        batch = complete_batch(batch)
        rows = len(batch["input_ids"])
        batch = flat_batch(batch) if batch["input_ids"].ndim > 2 else batch
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        scores = LMHead(self.model, name="masked_lm")(hidden, encoder.word_embedding())
        weights = word_weights(scores, batch)[..., : self.model.vocab_size]
        return EmbeddingOutputs(weights.reshape(rows, -1, self.model.vocab_size))


def word_weights(scores: WordScores, batch: Batch, max_logits: int = MAX_LOGITS) -> jax.Array:
    """Returns the maximum of log(1 + relu(logit)) over the tokens of a text, for each word.

    With more logits, positions are processed in equal parts of the sequence, one after the other,
    and the backward pass recomputes the logits of each part.

    Args:
      scores: float[batch, seq, hidden] features, which give the logits.
      batch: int32[batch, seq] `example_ids` and int32[batch, examples] `cls_positions`.
      max_logits: maximum number of logits in memory, over all devices.

    Returns:
      float32[batch, examples, padded vocab].
    """

    def maximum(table, bias, highest, features, example_ids):
        words = dataclasses.replace(scores, features=features, table=table, bias=bias)
        part = {"example_ids": example_ids, "cls_positions": batch["cls_positions"]}
        return jnp.maximum(highest, pool("max", words.logits(), part))

    # The logarithm is monotonic, so the maximum can come first; it starts at 0, which applies relu.
    shape = (*batch["cls_positions"].shape, len(scores.table))
    highest = jnp.zeros(shape, jnp.float32)
    arrays = (scores.features, batch["example_ids"])
    if (num_parts := count_parts(scores, max_logits)) == 1:
        return jnp.log1p(maximum(scores.table, scores.bias, highest, *arrays))

    # The table is an argument: what a rematerialized function closes over stays in memory.
    part = jax.checkpoint(maximum)

    def step(highest, inputs):
        return part(scores.table, scores.bias, highest, *inputs), None

    parts = tuple(split_positions(array, num_parts) for array in arrays)
    return jnp.log1p(jax.lax.scan(step, highest, parts)[0])
