"""The two heads of pre-training, and the model they stand on."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.bert import Batch, Bert
from bert_jax.models.config import BertConfig
from bert_jax.models.layers import activate, dense, layer_norm


@flax.struct.dataclass
class PreTrainingOutputs:
    """Answers to the questions of pre-training.

    Attributes:
      masked_lm_logits: float32[batch, predictions, padded vocab]; rows of the table beyond
        `vocab_size` have no probability.
      next_sentence_logits: float32[batch, examples, 2]; class 1: B is a random sentence. None in
        a model without next-sentence prediction.
      hidden: float[batch, seq, hidden], the last layer's.
    """

    masked_lm_logits: jax.Array
    next_sentence_logits: jax.Array | None
    hidden: jax.Array


class MaskedLMHead(nn.Module):
    """Dense -> GELU -> layer norm -> product with the table of word embeddings, plus a bias."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: jax.Array, embedding: jax.Array) -> jax.Array:
        """float[batch, predictions, hidden], float32[padded vocab, hidden] -> float32 logits."""
        config = self.config
        x = activate(config, dense(config, config.hidden_size, "transform")(hidden))
        x = layer_norm(config, "layer_norm")(x)
        logits = jnp.einsum(
            "bpd,vd->bpv", x, embedding.astype(x.dtype), preferred_element_type=jnp.float32
        )
        bias = self.param("bias", nn.initializers.zeros_init(), (config.padded_vocab_size,))
        is_word = jnp.arange(config.padded_vocab_size) < config.vocab_size
        return logits + jnp.where(is_word, bias, jnp.finfo(jnp.float32).min)[None, None]


class NextSentenceHead(nn.Module):
    """Two classes from the pooled [CLS]."""

    config: BertConfig

    @nn.compact
    def __call__(self, pooled: jax.Array) -> jax.Array:
        """float[batch, examples, hidden] -> float32[batch, examples, 2]."""
        kernel_init = nn.initializers.truncated_normal(self.config.initializer_range)
        kernel = self.param("kernel", kernel_init, (self.config.hidden_size, 2))
        bias = self.param("bias", nn.initializers.zeros_init(), (2,))
        return pooled.astype(jnp.float32) @ kernel + bias[None, None]


class BertForPreTraining(nn.Module):
    """BERT with the masked-LM head and, if `config.next_sentence`, the next-sentence head."""

    config: BertConfig

    def setup(self):
        self.bert = Bert(self.config)
        self.masked_lm = MaskedLMHead(self.config)
        if self.config.next_sentence:
            self.next_sentence = NextSentenceHead(self.config)

    def __call__(self, batch: Batch, *, deterministic: bool) -> PreTrainingOutputs:
        """Encodes a batch and answers; only the asked positions meet the vocabulary.

        Args:
          batch: what `Bert` takes, and int32[batch, predictions] `masked_lm_positions`.
          deterministic: no dropout; otherwise a key "dropout" is needed.
        """
        encoded = self.bert(batch, deterministic=deterministic)
        positions = batch["masked_lm_positions"][:, :, None]
        asked = jnp.take_along_axis(encoded.hidden, positions, axis=1)
        embedding = self.bert.embeddings.word_embeddings.embedding
        pooled = encoded.pooled
        return PreTrainingOutputs(
            masked_lm_logits=self.masked_lm(asked, embedding),
            next_sentence_logits=None if pooled is None else self.next_sentence(pooled),
            hidden=encoded.hidden,
        )
