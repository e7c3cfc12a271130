"""The models that are fine-tuned: an encoder and a small head (paper, section 4 and appendix B).

Dropout before the head has the encoder's rate, as in `run_classifier.py`; kernels start as those of
the encoder, biases at zero. Logits are float32.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models import make_encoder
from bert_jax.models.crf import Crf
from bert_jax.models.layer_choice import choose
from bert_jax.models.layers.dense import initializer
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.model import Batch, EncoderConfig
from bert_jax.models.pooling import EncoderWithPooler

# Heads of a tagger.
TAGGING_HEADS = ("linear", "crf", "bilstm", "bilstm_crf")
# Layers that a tagger reads: rows of LAYER_CHOICES (paper, Table 7).
TAGGING_LAYERS = (
    "last",
    "embeddings",
    "second_to_last",
    "sum_last_4",
    "concat_last_4",
    "sum_all",
    "scalar_mix",
)
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
    """One of several classes, several of them, or (one class) a number, from the pooled [CLS].

    Attributes:
      model: configuration of the encoder.
      num_classes: number of logits.
    """

    model: EncoderConfig
    num_classes: int

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What `EncoderWithPooler` takes, one example a row -> float32[batch, classes]."""
        return _pooled_logits(self.model, self.num_classes, batch, deterministic)


class MultipleChoiceModel(nn.Module):
    """One of several endings: a number for each, from its pooled [CLS].

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What `EncoderWithPooler` takes, each with [batch, choices] in front.

        Returns:
          float32[batch, choices]; a choice that is all padding gets `IMPOSSIBLE`.
        """
        names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
        flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names}
        logits = _pooled_logits(self.model, 1, flat, deterministic)
        is_choice = (batch["example_ids"] > 0).any(-1)
        return jnp.where(is_choice, logits.reshape(is_choice.shape), IMPOSSIBLE)


def _pooled_logits(
    model: EncoderConfig, num_classes: int, batch: Batch, deterministic: bool
) -> jax.Array:
    """Pooled [CLS] of the only example of a row -> dropout -> logits, in a compact method."""
    encoder = EncoderWithPooler(model, name=model.name)
    _, pooled = encoder(batch, deterministic=deterministic)
    dropout = Dropout(model.dropout_rate, model.prng_impl, name="dropout")
    return LinearHead(model, num_classes, name="classifier")(dropout(pooled[:, 0], deterministic))


@flax.struct.dataclass
class SpanOutputs:
    """float32[batch, seq] each: logits of the first and of the last token of the answer."""

    start_logits: jax.Array
    end_logits: jax.Array


class SpanModel(nn.Module):
    """Start and end of an answer, from the last hidden states (paper, section 4.2).

    Attributes:
      model: configuration of the encoder.
    """

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> SpanOutputs:
        """What the encoder takes -> logits; padding gets `IMPOSSIBLE`."""
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        logits = LinearHead(self.model, 2, name="span")(hidden)
        logits = jnp.where((batch["example_ids"] > 0)[:, :, None], logits, IMPOSSIBLE)
        return SpanOutputs(logits[..., 0], logits[..., 1])


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
      layers: of TAGGING_LAYERS.
      frozen: the encoder is not trained and has no dropout: its states are features.
      lstm_size, lstm_layers: of the BiLSTM, each direction (Table 7: two layers of 768).
    """

    model: EncoderConfig
    num_classes: int
    head: str = "linear"
    layers: str = "last"
    frozen: bool = False
    lstm_size: int = 768
    lstm_layers: int = 2

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> TaggingOutputs:
        """What the encoder takes, int32[batch, words] `word_positions`, bool[...] `is_word`."""
        model = self.model
        encoded = make_encoder(model, name=model.name)(
            batch, deterministic=deterministic or self.frozen, keep_all=self.layers != "last"
        )
        states = encoded.all_hidden or (encoded.hidden,)
        at = batch["word_positions"][:, :, None]
        words = tuple(jnp.take_along_axis(x, at, axis=1).astype(jnp.float32) for x in states)
        if self.frozen:
            words = jax.lax.stop_gradient(words)
        if self.layers == "scalar_mix":
            x = ScalarMix(name="scalar_mix")(words)
        else:
            x = choose(self.layers, words, last_first=True)
        if self.head.startswith("bilstm"):
            x = self._bilstm(x, batch["is_word"].sum(1), deterministic)
        x = Dropout(model.dropout_rate, model.prng_impl)(x, deterministic)
        logits = LinearHead(model, self.num_classes, name="classifier")(x)
        return TaggingOutputs(logits, self._crf() if self.head.endswith("crf") else None)

    def _bilstm(self, x: jax.Array, lengths: jax.Array, deterministic: bool) -> jax.Array:
        for layer in range(self.lstm_layers):
            if layer:
                x = Dropout(self.model.dropout_rate, self.model.prng_impl)(x, deterministic)
            forward, backward = (
                nn.RNN(nn.OptimizedLSTMCell(self.lstm_size, name=f"lstm_{layer}_{name}"))
                for name in ("forward", "backward")
            )
            lstm: Any = nn.Bidirectional(forward, backward)
            x = lstm(x, seq_lengths=lengths)
        return x

    def _crf(self) -> Crf:
        classes, zeros = self.num_classes, nn.initializers.zeros_init()
        return Crf(
            transitions=self.param("transitions", zeros, (classes, classes)),
            start=self.param("start_transitions", zeros, (classes,)),
            end=self.param("end_transitions", zeros, (classes,)),
        )


class ScalarMix(nn.Module):
    """gamma * sum_i softmax(w)_i * state_i (Peters et al. 2018, equation 1)."""

    @nn.compact
    def __call__(self, states: tuple[jax.Array, ...]) -> jax.Array:
        """float[batch, seq, hidden] of the embeddings and each layer -> a mix of the layers."""
        shape = (len(states) - 1,)
        weights = self.param("weights", nn.initializers.zeros_init(), shape)
        gamma = self.param("gamma", nn.initializers.ones_init(), ())
        return gamma * choose("scalar_mix", states, weights=nn.softmax(weights))
