"""The models that are fine-tuned: BERT and a small head (paper, section 4 and appendix B).

Dropout before the head has the model's rate, as in `run_classifier.py`; kernels start as BERT's,
biases at zero. Logits are float32.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.bert import Batch, Bert, BertOutputs
from bert_jax.models.config import BertConfig
from bert_jax.models.crf import Crf
from bert_jax.models.layers import Dropout

# Where the head of a tagger stands, one on top of the other.
TAGGING_HEADS = ("linear", "crf", "bilstm", "bilstm_crf")
# What the tagger reads of the encoder (paper, Table 7).
LAYERS = (
    "last",
    "embeddings",
    "second_to_last",
    "sum_last_4",
    "concat_last_4",
    "sum_all",
    "scalar_mix",
)
# Added to the logits of what cannot be the answer.
IMPOSSIBLE = -1e9


class LinearHead(nn.Module):
    """A dense layer in float32."""

    config: BertConfig
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float[..., features] -> float32[..., classes]."""
        kernel_init = nn.initializers.truncated_normal(self.config.initializer_range)
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.num_classes))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.num_classes,))
        logits = x.astype(jnp.float32) @ kernel
        return logits + bias.reshape((1,) * (logits.ndim - 1) + bias.shape)


def pooled_of(encoded: BertOutputs) -> jax.Array:
    """float[batch, hidden], of the only example of each row."""
    assert encoded.pooled is not None
    return encoded.pooled[:, 0]


class BertForClassification(nn.Module):
    """One of several classes, several of them, or (one class) a number, from the pooled [CLS]."""

    config: BertConfig
    num_classes: int

    def setup(self):
        self.bert = Bert(dataclasses.replace(self.config, next_sentence=True))
        self.dropout = Dropout(self.config.dropout_rate, self.config.prng_impl)
        self.classifier = LinearHead(self.config, self.num_classes)

    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What `Bert` takes -> float32[batch, classes]."""
        pooled = pooled_of(self.bert(batch, deterministic=deterministic))
        return self.classifier(self.dropout(pooled, deterministic))


class BertForMultipleChoice(nn.Module):
    """One of several endings: a number for each, from its pooled [CLS]."""

    config: BertConfig

    def setup(self):
        self.bert = Bert(dataclasses.replace(self.config, next_sentence=True))
        self.dropout = Dropout(self.config.dropout_rate, self.config.prng_impl)
        self.classifier = LinearHead(self.config, 1)

    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What `Bert` takes, each with [batch, choices] in front -> float32[batch, choices].

        A choice that is all padding is none, and gets `IMPOSSIBLE`.
        """
        names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
        flat = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names}
        pooled = pooled_of(self.bert(flat, deterministic=deterministic))
        logits = self.classifier(self.dropout(pooled, deterministic))
        is_choice = (batch["example_ids"] > 0).any(-1)
        return jnp.where(is_choice, logits.reshape(is_choice.shape), IMPOSSIBLE)


@flax.struct.dataclass
class SpanOutputs:
    """float32[batch, seq] each: where the answer starts, and where it ends."""

    start_logits: jax.Array
    end_logits: jax.Array


class BertForSpan(nn.Module):
    """Start and end of an answer, from the last hidden states (paper, section 4.2)."""

    config: BertConfig

    def setup(self):
        self.bert = Bert(dataclasses.replace(self.config, next_sentence=False))
        self.span = LinearHead(self.config, 2)

    def __call__(self, batch: Batch, *, deterministic: bool) -> SpanOutputs:
        """What `Bert` takes -> logits; padding gets `IMPOSSIBLE`."""
        logits = self.span(self.bert(batch, deterministic=deterministic).hidden)
        logits = jnp.where((batch["example_ids"] > 0)[:, :, None], logits, IMPOSSIBLE)
        return SpanOutputs(logits[..., 0], logits[..., 1])


@flax.struct.dataclass
class TaggingOutputs:
    """Attributes:
    logits: float32[batch, words, classes].
    crf: what ties neighbouring tags; None without it.
    """

    logits: jax.Array
    crf: Crf | None


class BertForTagging(nn.Module):
    """A tag for each word, from the hidden state of its first piece (paper, section 5.3).

    Attributes:
      num_classes: tags.
      head: of TAGGING_HEADS.
      layers: of LAYERS.
      frozen: the encoder is not trained and has no dropout: its states are features.
      lstm_size, lstm_layers: of the BiLSTM, each direction (Table 7: two layers of 768).
    """

    config: BertConfig
    num_classes: int
    head: str = "linear"
    layers: str = "last"
    frozen: bool = False
    lstm_size: int = 768
    lstm_layers: int = 2

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> TaggingOutputs:
        """What `Bert` takes and int32[batch, words] `word_positions`, bool `is_word` -> logits."""
        config = dataclasses.replace(self.config, next_sentence=False)
        encoded = Bert(config, name="bert")(
            batch, deterministic=deterministic or self.frozen, keep_all=self.layers != "last"
        )
        states = encoded.all_hidden or (encoded.hidden,)
        at = batch["word_positions"][:, :, None]
        words = tuple(jnp.take_along_axis(x, at, axis=1).astype(jnp.float32) for x in states)
        if self.frozen:
            words = jax.lax.stop_gradient(words)
        x = self._choose(words)
        if self.head.startswith("bilstm"):
            x = self._bilstm(x, batch["is_word"].sum(1), deterministic)
        x = Dropout(config.dropout_rate, config.prng_impl)(x, deterministic)
        logits = LinearHead(config, self.num_classes, name="classifier")(x)
        return TaggingOutputs(logits, self._crf() if self.head.endswith("crf") else None)

    def _choose(self, states: tuple[jax.Array, ...]) -> jax.Array:
        """The embeddings' output and each layer's -> the features."""
        match self.layers:
            case "embeddings":
                return states[0]
            case "second_to_last":
                return states[-2]
            case "sum_last_4":
                return sum(states[-4:-1], states[-1])
            case "concat_last_4":
                return jnp.concatenate(states[-4:], axis=-1)
            case "sum_all":
                return sum(states[1:-1], states[-1])
            case "scalar_mix":
                return ScalarMix(name="scalar_mix")(states[1:])
        return states[-1]

    def _bilstm(self, x: jax.Array, lengths: jax.Array, deterministic: bool) -> jax.Array:
        for layer in range(self.lstm_layers):
            if layer:
                x = Dropout(self.config.dropout_rate, self.config.prng_impl)(x, deterministic)
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
        """float[batch, seq, hidden] of each layer -> the same of all."""
        weights = self.param("weights", nn.initializers.zeros_init(), (len(states),))
        gamma = self.param("gamma", nn.initializers.ones_init(), ())
        shares = nn.softmax(weights)
        return gamma * sum(share * state for share, state in zip(shares, states, strict=True))
