"""The pre-training heads and their models; the sharding rules of all heads."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.devices.sharding import split_rows
from bert_jax.models import make_encoder
from bert_jax.models.copy_head import Copies, CopyHead
from bert_jax.models.layers.cpu import word_logits
from bert_jax.models.layers.dense import activate, dense, initializer
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Batch, EncoderConfig, Rules, complete_batch
from bert_jax.models.pooling import EncoderWithPooler

# For the parameters of all heads, here and in task_heads.py, and of the pooler. Parameters of the
# encoder have the rules of its row in MODELS.
HEAD_RULES: Rules = (
    (r"(^|/)(masked_lm|softmax)/bias$", PartitionSpec("tensor")),
    (r"(^|/)softmax/kernel$", PartitionSpec("tensor", "fsdp")),
    (
        r"(^|/)(pooler|transform|next_sentence|classifier|span|projection)/kernel$",
        PartitionSpec("fsdp"),
    ),
    (r"(^|/)(pooler|transform|next_sentence|classifier|span)/bias$", PartitionSpec()),
    (r"(^|/)masked_lm/layer_norm/(bias|scale)$", PartitionSpec()),
    (r"(^|/)copy_head/(query|key)/kernel$", PartitionSpec("fsdp")),
    (r"(^|/)copy_head/((query|key)/bias|gate_kernel|gate_bias)$", PartitionSpec()),
    (r"(^|/)lstm_\d+_(forward|backward)/\w+/kernel$", PartitionSpec("fsdp")),
    (r"(^|/)lstm_\d+_(forward|backward)/\w+/bias$", PartitionSpec()),
    (r"(^|/)((start_|end_)?transitions|scalar_mix/\w+)$", PartitionSpec()),
)


@flax.struct.dataclass
class WordScores:
    """Word logits as two factors, so that a loss need not hold the logits of all positions.

    Attributes:
      features: float[batch, positions, hidden].
      table: float32[words, hidden].
      bias: float32[words]; see `word_bias`.
      rounds_products: whether features and table are rounded to bfloat16 for the product.
    """

    features: jax.Array
    table: jax.Array
    bias: jax.Array
    rounds_products: bool = flax.struct.field(pytree_node=False, default=False)

    def logits(self) -> jax.Array:
        """float32[batch, positions, words]."""
        return word_logits(self.features, self.table, self.bias, self.rounds_products)


def word_bias(config: EncoderConfig, bias: jax.Array) -> jax.Array:
    """Returns float32[padded vocab] biases that give rows past `vocab_size` zero probability."""
    is_word = jnp.arange(config.padded_vocab_size) < config.vocab_size
    return jnp.where(is_word, bias, jnp.finfo(jnp.float32).min)


class LMHead(nn.Module):
    """Word scores, tied to the word embedding table.

    lm_head="transform": dense -> GELU -> layer norm -> product with the table, plus a bias, as in
    BERT's masked-LM head; lm_head="tied": the product alone, without parameters. The dense layer
    has as many features as the table.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden: jax.Array, embedding: jax.Array) -> WordScores:
        """float[batch, positions, hidden], float32[padded vocab, features] -> scores of words."""
        config, x = self.config, split_rows(hidden)
        bias = jnp.zeros(config.padded_vocab_size, jnp.float32)
        if config.lm_head == "transform":
            x = activate(config, dense(config, config.embedding_size, "transform")(x))
            x = layer_norm(config, "layer_norm")(x)
            bias = self.param("bias", nn.initializers.zeros_init(), (config.padded_vocab_size,))
        return WordScores(split_rows(x), embedding, word_bias(config, bias), config.rounds_products)


def word_flops(config: EncoderConfig) -> float:
    """FLOPs of the matrix products between a hidden state and its logits, in a forward pass."""
    hidden, features = config.hidden_size, config.embedding_size
    transform = hidden * features if config.lm_head == "transform" else 0
    return 2.0 * (transform + features * config.padded_vocab_size)


class LinearHead(nn.Module):
    """A dense layer in float32; its kernel is initialized as in the encoder, its bias to zero."""

    config: EncoderConfig
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float[..., features] -> float32[..., classes]."""
        kernel_init = initializer(self.config)
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.num_classes))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.num_classes,))
        logits = split_rows(split_rows(x.astype(jnp.float32)) @ kernel)
        return logits + bias.reshape((1,) * (logits.ndim - 1) + bias.shape)


@flax.struct.dataclass
class PreTrainingOutputs:
    """The output of a model for pre-training.

    Attributes:
      masked_lm_logits: float32[batch, predictions, padded vocab].
      next_sentence_logits: float32[batch, examples, 2]; class 1: B is a random sentence. None in
        a model without next-sentence prediction.
      hidden: float[batch, seq, hidden], of the last layer; None with
        `last_layer_predicted_only`, which computes the last layer at predicted positions only.
      copies: what the copy head adds to the softmax of the logits; None without such a head.
    """

    masked_lm_logits: jax.Array
    next_sentence_logits: jax.Array | None
    hidden: jax.Array | None
    copies: Copies | None = None

    def log_probabilities(self, num_words: int) -> jax.Array:
        """float32[batch, predictions, words], normalized over the first `num_words` words."""
        log_words = jax.nn.log_softmax(self.masked_lm_logits[..., :num_words])
        return log_words if self.copies is None else self.copies.mix(log_words)

    def probabilities(self, num_words: int) -> jax.Array:
        """The exponentials of `log_probabilities`."""
        if self.copies is None:
            return jax.nn.softmax(self.masked_lm_logits[..., :num_words])
        return jnp.exp(self.log_probabilities(num_words))


class PreTrainingModel(nn.Module):
    """An encoder with the masked-LM head and, if requested, the next-sentence head.

    Attributes:
      model: the encoder's configuration.
      next_sentence: whether there is a pooler and a next-sentence head.
      mask_id: id of [MASK], which a copy head does not copy; required if there is a copy head.
    """

    model: EncoderConfig
    next_sentence: bool
    mask_id: int = -1

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> PreTrainingOutputs:
        """Encodes a batch and applies the heads.

        Args:
          batch: the encoder's input, int32[batch, predictions] `masked_lm_positions`, and with
            next-sentence prediction int32[batch, examples] `cls_positions`.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        batch = complete_batch(batch)
        model, next_sentence_logits = self.model, None
        positions = predicting_positions(model, batch["masked_lm_positions"])
        predicted_only = isinstance(model, TransformerConfig) and model.last_layer_predicted_only
        if predicted_only:
            batch = _read_only(batch, positions, self.next_sentence)
        if self.next_sentence:
            encoder = EncoderWithPooler(model, name=model.name)
            encoded, pooled = encoder(batch, deterministic=deterministic)
        else:
            encoder, pooled = make_encoder(model, name=model.name), None
            encoded = encoder(batch, deterministic=deterministic)
        # Only the masked positions are multiplied by the vocabulary.
        if predicted_only:
            masked = encoded.hidden[:, : positions.shape[1]]
        else:
            masked = jnp.take_along_axis(encoded.hidden, positions[:, :, None], axis=1)
        scores = LMHead(model, name="masked_lm")(masked, encoder.word_embedding())
        masked_lm_logits, copies = scores.logits(), None
        if model.has_copy_head:
            head = CopyHead(model, self.mask_id, name="copy_head")
            assert encoded.attended is not None  # set by a Transformer with a copy head
            copies = head(masked, encoded.attended, batch)
        if pooled is not None:
            next_sentence_logits = LinearHead(model, 2, name="next_sentence")(pooled)
        hidden = None if predicted_only else encoded.hidden
        return PreTrainingOutputs(masked_lm_logits, next_sentence_logits, hidden, copies)


def predicting_positions(model: EncoderConfig, positions: jax.Array) -> jax.Array:
    """Returns the positions whose hidden states predict masked tokens.

    Args:
      model: the encoder's configuration.
      positions: int32[batch, predictions] of the masked tokens; 0 in unused slots.
    """
    if isinstance(model, TransformerConfig) and model.predicts_next:
        return jnp.maximum(positions - 1, 0)
    return positions


def _read_only(batch: Batch, positions: jax.Array, reads_cls: bool) -> dict[str, jax.Array]:
    """Returns the batch for an encoder that returns hidden states of some positions only.

    Args:
      batch: a complete batch.
      positions: int32[batch, predictions].
      reads_cls: whether a pooler reads [CLS] too; `cls_positions` then count the positions read.
    """
    if not reads_cls:
        return {**batch, "read_positions": positions}
    cls = batch["cls_positions"]
    places = positions.shape[1] + jnp.arange(cls.shape[1], dtype=cls.dtype)
    return {
        **batch,
        "read_positions": jnp.concatenate([positions, cls], axis=1),
        "cls_positions": jnp.broadcast_to(places[None], cls.shape),
    }
