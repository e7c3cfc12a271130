"""The models that are fine-tuned: an encoder and a small head (paper, section 4 and appendix B).

Dropout before the head has the encoder's rate, as in `run_classifier.py`, unless the head has its
own; kernels start as those of the encoder, biases at zero. Logits are float32. With `keep_reading`
the models also return the `Reading` of what the encoder gave, for auxiliary losses.
"""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.crf import Crf
from bert_jax.models.layers.dense import initializer
from bert_jax.models.model import Batch, EncoderConfig
from bert_jax.models.reading import HeadConfig, Reading, read_pooled, read_tokens

# Heads of a tagger.
TAGGING_HEADS = ("linear", "crf", "bilstm", "bilstm_crf")
# Logit of positions and choices that cannot be the answer.
IMPOSSIBLE = -1e9


class LinearHead(nn.Module):
    """A dense layer in float32."""

    config: EncoderConfig
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float[..., features] -> float32[..., classes]."""
        kernel_init = initializer(self.config)
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.num_classes))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.num_classes,))
        logits = x.astype(jnp.float32) @ kernel
        return logits + bias.reshape((1,) * (logits.ndim - 1) + bias.shape)


class ClassificationModel(nn.Module):
    """One of several classes, several of them, or (one class) a number, from a pooled vector.

    Attributes:
      model: configuration of the encoder.
      num_classes: number of logits.
      head: what is read; with `both_orders`, the sum of the vectors of two sequences.
    """

    model: EncoderConfig
    num_classes: int
    head: HeadConfig = HeadConfig()

    @nn.compact
    def __call__(
        self, batch: Batch, *, deterministic: bool, keep_reading: bool = False
    ) -> jax.Array | tuple[jax.Array, Reading]:
        """What `read_pooled` takes -> float32[batch, classes]; [batch, 2] in front for two orders.

        Rows with several examples give [batch, examples, classes].

        Returns the logits, or with `keep_reading` the logits and what was read.
        """
        head = self.head
        if head.both_orders:
            pooled, reading = read_pooled(self.model, head, flat_batch(batch), deterministic)
            pooled = pooled.astype(jnp.float32).reshape(-1, 2, pooled.shape[-1]).sum(axis=1)
        else:
            pooled, reading = read_pooled(self.model, head, batch, deterministic)
        x = head.dropout(self.model, "dropout")(pooled, deterministic)
        logits = LinearHead(self.model, self.num_classes, name="classifier")(x)
        return (logits, reading) if keep_reading else logits


class MultipleChoiceModel(nn.Module):
    """One of several endings: a number for each, from its pooled vector.

    Attributes:
      model: configuration of the encoder.
      head: what is read.
    """

    model: EncoderConfig
    head: HeadConfig = HeadConfig()

    @nn.compact
    def __call__(
        self, batch: Batch, *, deterministic: bool, keep_reading: bool = False
    ) -> jax.Array | tuple[jax.Array, Reading]:
        """What `read_pooled` takes, each with [batch, choices] in front.

        Returns:
          float32[batch, choices]; a choice that is all padding gets `IMPOSSIBLE`. With
          `keep_reading` also what was read.
        """
        is_choice = (batch["example_ids"] > 0).any(-1)
        x, reading = read_pooled(self.model, self.head, flat_batch(batch), deterministic)
        if shared := self.head.share_dropout:
            x = x.reshape(*is_choice.shape, -1)
        x = self.head.dropout(self.model, "dropout", shared)(x, deterministic)
        logits = LinearHead(self.model, 1, name="classifier")(x).reshape(is_choice.shape)
        logits = jnp.where(is_choice, logits, IMPOSSIBLE)
        return (logits, reading) if keep_reading else logits


def flat_batch(batch: Batch) -> dict[str, jax.Array]:
    """[batch, sequences, n, ...] -> [batch * sequences, n, ...], of what encoders take."""
    arrays = {name: array for name, array in batch.items() if name != "carry" and array.ndim > 2}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


@flax.struct.dataclass
class SpanOutputs:
    """float32[batch, seq] each: logits of the first and of the last token of the answer."""

    start_logits: jax.Array
    end_logits: jax.Array


class SpanModel(nn.Module):
    """Start and end of an answer, from the hidden states of its tokens (paper, section 4.2).

    Attributes:
      model: configuration of the encoder.
      head: what is read; as in `run_squad.py`, there is no dropout before the last dense layer,
        except after a BiLSTM.
    """

    model: EncoderConfig
    head: HeadConfig = HeadConfig()

    @nn.compact
    def __call__(
        self, batch: Batch, *, deterministic: bool, keep_reading: bool = False
    ) -> SpanOutputs | tuple[SpanOutputs, Reading]:
        """What the encoder takes -> logits; padding gets `IMPOSSIBLE`."""
        x, reading = read_tokens(self.model, self.head, batch, deterministic)
        if self.head.has_bilstm:
            x = self.head.dropout(self.model, "dropout")(x, deterministic)
        logits = LinearHead(self.model, 2, name="span")(x)
        logits = jnp.where((batch["example_ids"] > 0)[:, :, None], logits, IMPOSSIBLE)
        outputs = SpanOutputs(logits[..., 0], logits[..., 1])
        return (outputs, reading) if keep_reading else outputs


@flax.struct.dataclass
class TaggingOutputs:
    """The output of a tagger.

    Attributes:
      logits: float32[batch, words, classes].
      crf: scores of neighbouring tags; None without a CRF.
    """

    logits: jax.Array
    crf: Crf | None


class TaggingModel(nn.Module):
    """A tag for each word, from the hidden state of its first piece (paper, section 5.3).

    Attributes:
      model: configuration of the encoder.
      num_classes: number of tags.
      head: of TAGGING_HEADS.
      layers, frozen, lstm_size, lstm_layers, dropout_rate, mix_layer_norm: of HeadConfig.
    """

    model: EncoderConfig
    num_classes: int
    head: str = "linear"
    layers: str = "last"
    frozen: bool = False
    lstm_size: int = 768
    lstm_layers: int = 2
    dropout_rate: float = -1.0
    mix_layer_norm: bool = False

    @nn.compact
    def __call__(
        self, batch: Batch, *, deterministic: bool, keep_reading: bool = False
    ) -> TaggingOutputs | tuple[TaggingOutputs, Reading]:
        """What the encoder takes, int32[batch, words] `word_positions`, bool[...] `is_word`."""
        model = self.model
        head = HeadConfig(
            head=self.head,
            layers=self.layers,
            frozen=self.frozen,
            lstm_size=self.lstm_size,
            lstm_layers=self.lstm_layers,
            dropout_rate=self.dropout_rate,
            mix_layer_norm=self.mix_layer_norm,
        )
        x, reading = read_tokens(
            model, head, batch, deterministic, batch["word_positions"], batch["is_word"]
        )
        x = head.dropout(model)(x, deterministic)
        logits = LinearHead(model, self.num_classes, name="classifier")(x)
        outputs = TaggingOutputs(logits, self._crf() if self.head.endswith("crf") else None)
        return (outputs, reading) if keep_reading else outputs

    def _crf(self) -> Crf:
        classes, zeros = self.num_classes, nn.initializers.zeros_init()
        return Crf(
            transitions=self.param("transitions", zeros, (classes, classes)),
            start=self.param("start_transitions", zeros, (classes,)),
            end=self.param("end_transitions", zeros, (classes,)),
        )
