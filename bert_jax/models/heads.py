"""The heads of pre-training and their models; the sharding rules of all heads."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.models import make_encoder
from bert_jax.models.batch import complete_batch
from bert_jax.models.layers.cache import Cache
from bert_jax.models.layers.dense import dense, initializer, word_logits
from bert_jax.models.layers.feed_forward import activate
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Batch, EncoderConfig, Rules
from bert_jax.models.pooling import EncoderWithPooler

# Of the parameters of all heads, here and in task_heads.py, and of the pooler. Parameters of the
# encoder have the rules of its row in MODELS.
HEAD_RULES: Rules = (
    (r"(^|/)(masked_lm|softmax)/bias$", PartitionSpec("tensor")),
    (r"(^|/)softmax/kernel$", PartitionSpec("tensor", "fsdp")),
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


@flax.struct.dataclass
class WordScores:
    """The logits of the words as factors, so that a loss never holds the logits of all positions.

    Attributes:
      features: float[batch, positions, hidden].
      table: float32[words, hidden].
      bias: float32[words]; the lowest float32 for rows of the table past `vocab_size`, which thus
        have no probability.
      rounds_products: whether features and table are rounded to bfloat16 for the product.
    """

    features: jax.Array
    table: jax.Array
    bias: jax.Array
    rounds_products: bool = flax.struct.field(pytree_node=False, default=False)

    def logits(self) -> jax.Array:
        """float32[batch, positions, words]."""
        return word_logits(self.features, self.table, self.bias, self.rounds_products)


class MaskedLMHead(nn.Module):
    """Dense -> GELU -> layer norm -> product with the table of word embeddings, plus a bias."""

    config: EncoderConfig

    @nn.compact
    def scores(self, hidden: jax.Array, embedding: jax.Array) -> WordScores:
        """Returns the logits of all positions of `hidden`, before the product; see `__call__`."""
        config = self.config
        x = activate(config, dense(config, config.hidden_size, "transform")(hidden))
        x = layer_norm(config, "layer_norm")(x)
        bias = self.param("bias", nn.initializers.zeros_init(), (config.padded_vocab_size,))
        bias = _without_padding(config, bias)
        return WordScores(x, embedding, bias, config.rounds_products)

    def __call__(self, hidden: jax.Array, embedding: jax.Array) -> jax.Array:
        """float[batch, predictions, hidden], float32[padded vocab, hidden] -> float32 logits."""
        return self.scores(hidden, embedding).logits()


def _without_padding(config: EncoderConfig, bias: jax.Array) -> jax.Array:
    """float32[padded vocab], the lowest number for rows of the table that belong to no word."""
    is_word = jnp.arange(config.padded_vocab_size) < config.vocab_size
    return jnp.where(is_word, bias, jnp.finfo(jnp.float32).min)


def word_flops(config: EncoderConfig) -> float:
    """FLOPs of the matrix products between a hidden state and its logits, in a forward pass."""
    transform = config.hidden_size**2 if config.lm_head == "transform" else 0
    return 2.0 * (transform + config.hidden_size * config.padded_vocab_size)


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
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> PreTrainingOutputs:
        """Encodes a batch and applies the heads.

        Args:
          batch: what the encoder takes, int32[batch, predictions] `masked_lm_positions`, and with
            next-sentence prediction int32[batch, examples] `cls_positions`.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        batch = complete_batch(batch)
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
        masked_lm_logits = word_scores(model, masked, encoder.word_embedding()).logits()
        if pooled is not None:
            next_sentence_logits = NextSentenceHead(model, name="next_sentence")(pooled)
        return PreTrainingOutputs(masked_lm_logits, next_sentence_logits, encoded.hidden)


class CausalLMScores(nn.Module):
    """An encoder, and scores of the next word at each position.

    `model.lm_head` decides what is between the two: `transform`, BERT's masked-LM head with its
    parameters "masked_lm/..."; `tied`, nothing.

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> WordScores:
        """Returns the scores of the word after each position.

        Args:
          batch: what the encoder takes.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        embedding = encoder.word_embedding()
        return word_scores(self.model, hidden, embedding)


def word_scores(config: EncoderConfig, hidden: jax.Array, embedding: jax.Array) -> WordScores:
    """Returns the scores of words at positions; in a compact method.

    Args:
      config: of the encoder.
      hidden: float[batch, positions, hidden], its last hidden states.
      embedding: float32[padded vocab, hidden], its table of words.
    """
    if config.lm_head == "transform":
        return MaskedLMHead(config, name="masked_lm").scores(hidden, embedding)
    bias = jnp.zeros(config.padded_vocab_size, jnp.float32)
    bias = _without_padding(config, bias)
    return WordScores(hidden, embedding, bias, config.rounds_products)


class CausalLMModel(CausalLMScores):
    """The same model with the same parameters, whose output are the logits of all positions."""

    def __call__(self, batch: Batch, *, deterministic: bool = True) -> jax.Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """float32[batch, seq, padded vocab], of the word after each position."""
        return super().__call__(batch, deterministic=deterministic).logits()


class CausalLMDecoder(nn.Module):
    """The same model with the same parameters, which reads rows part by part.

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, cache: Cache) -> tuple[jax.Array, Cache]:
        """Returns float32[batch, padded vocab], of the word after each row, and the new cache.

        Args:
          batch: the next tokens of each row; see `Bert.decode`.
          cache: of the tokens before.
        """
        encoder = make_encoder(self.model, name=self.model.name)
        hidden, cache = encoder.decode(batch, cache)
        last = jnp.maximum((batch["example_ids"] > 0).sum(1) - 1, 0)
        hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)
        scores = word_scores(self.model, hidden, encoder.word_embedding())
        return scores.logits()[:, 0], cache


class WordLogits(nn.Module):
    """The head that predicts words alone, with its parameters "masked_lm/..." if it has any.

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, hidden: jax.Array, embedding: jax.Array) -> jax.Array:
        """float[batch, positions, hidden], float32[padded vocab, hidden] -> float32 logits."""
        return word_scores(self.model, hidden, embedding).logits()
