"""The two heads of pre-training and their model; the sharding rules of all heads."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.models import make_encoder
from bert_jax.models.layers.dense import dense, initializer
from bert_jax.models.layers.feed_forward import activate
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Batch, EncoderConfig, Rules
from bert_jax.models.pooling import EncoderWithPooler

# Of the parameters of all heads, here and in task_heads.py, and of the pooler. Parameters of the
# encoder have the rules of its row in MODELS.
HEAD_RULES: Rules = (
    (r"(^|/)masked_lm/bias$", PartitionSpec("tensor")),
    (r"(^|/)(pooler|transform|next_sentence|classifier|span)/kernel$", PartitionSpec("fsdp")),
    (r"(^|/)(pooler|transform|next_sentence|classifier|span)/bias$", PartitionSpec()),
    (r"(^|/)masked_lm/layer_norm/(bias|scale)$", PartitionSpec()),
    (r"(^|/)lstm_\d+_(forward|backward)/\w+/kernel$", PartitionSpec("fsdp")),
    (r"(^|/)lstm_\d+_(forward|backward)/\w+/bias$", PartitionSpec()),
    (r"(^|/)((start_|end_)?transitions|scalar_mix/\w+)$", PartitionSpec()),
)


@flax.struct.dataclass
class PreTrainingOutputs:
    """The output of a model for pre-training.

    Attributes:
      masked_lm_logits: float32[batch, predictions, padded vocab]; rows of the table past
        `vocab_size` have no probability.
      next_sentence_logits: float32[batch, examples, 2]; class 1: B is a random sentence. None in
        a model without next-sentence prediction.
      hidden: float[batch, seq, hidden], of the last layer.
    """

    masked_lm_logits: jax.Array
    next_sentence_logits: jax.Array | None
    hidden: jax.Array


class MaskedLMHead(nn.Module):
    """Dense -> GELU -> layer norm -> product with the table of word embeddings, plus a bias."""

    config: EncoderConfig

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


def masked_lm_flops_per_prediction(config: EncoderConfig) -> float:
    """FLOPs of the matrix products of `MaskedLMHead` for one position, in a forward pass."""
    return 2.0 * (config.hidden_size**2 + config.hidden_size * config.padded_vocab_size)


class NextSentenceHead(nn.Module):
    """Two classes from the pooled [CLS]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, pooled: jax.Array) -> jax.Array:
        """float[batch, examples, hidden] -> float32[batch, examples, 2]."""
        kernel_init = initializer(self.config)
        kernel = self.param("kernel", kernel_init, (self.config.hidden_size, 2))
        bias = self.param("bias", nn.initializers.zeros_init(), (2,))
        return pooled.astype(jnp.float32) @ kernel + bias[None, None]


class PreTrainingModel(nn.Module):
    """An encoder with the masked-LM head and, if requested, the next-sentence head.

    Attributes:
      model: configuration of the encoder.
      next_sentence: whether there is a pooler and a next-sentence head.
    """

    model: EncoderConfig
    next_sentence: bool

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> PreTrainingOutputs:
        """Encodes a batch and applies the heads.

        Args:
          batch: what the encoder takes, int32[batch, predictions] `masked_lm_positions`, and with
            next-sentence prediction int32[batch, examples] `cls_positions`.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        model, next_sentence_logits = self.model, None
        if self.next_sentence:
            encoder = EncoderWithPooler(model, name=model.name)
            encoded, pooled = encoder(batch, deterministic=deterministic)
        else:
            encoder, pooled = make_encoder(model, name=model.name), None
            encoded = encoder(batch, deterministic=deterministic)
        # Only the masked positions are multiplied by the vocabulary.
        positions = batch["masked_lm_positions"][:, :, None]
        masked = jnp.take_along_axis(encoded.hidden, positions, axis=1)
        head = MaskedLMHead(model, name="masked_lm")
        masked_lm_logits = head(masked, encoder.word_embedding())
        if pooled is not None:
            next_sentence_logits = NextSentenceHead(model, name="next_sentence")(pooled)
        return PreTrainingOutputs(masked_lm_logits, next_sentence_logits, encoded.hidden)
