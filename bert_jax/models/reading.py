"""What a head reads from its encoder, and the parts between the two: layers, BiLSTM, pooling.

    encoder -> `layers` -> BiLSTM, if there is one -> tokens, for tags and spans
                                                                -> pooling -> a vector
    encoder -> pooling -> pooler of BERT -> a vector

The functions are called in the compact method of the head's module, which owns the parameters.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.config.group import Group, derived, setting
from bert_jax.files.errors import UserError
from bert_jax.models import make_encoder
from bert_jax.models.heads import LMHead, WordScores
from bert_jax.models.layer_choice import LAYER_CHOICES, choose
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.model import Batch, Encoded, Encoder, EncoderConfig, complete_batch
from bert_jax.models.pooling import EncoderWithPooler, pool

_MIXES = ("scalar_mix", "mix_last_4", "mix_with_embeddings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig(Group):
    """What a head reads from its encoder, tokens or whole rows; the defaults are BERT's."""

    # What is between the encoder and the last layer: `linear`, nothing; `bilstm`, a randomly
    # initialized BiLSTM (paper, section 5.1 for texts and 5.3 for words).
    head: str = setting("linear", choices=("linear", "bilstm"))
    # Features of the BiLSTM in each direction.
    lstm_size: int = setting(768)
    # Layers of the BiLSTM.
    lstm_layers: int = setting(2)
    # What the head reads: last, embeddings, second_to_last, sum_last_4, concat_last_4, sum_all
    # (paper, Table 7); with learned weights: scalar_mix (all layers), mix_last_4,
    # mix_with_embeddings (every layer and the embeddings, as ELMo).
    layers: str = setting(
        "last",
        choices=(
            *("last", "embeddings", "second_to_last", "sum_last_4", "concat_last_4", "sum_all"),
            *_MIXES,
        ),
    )
    # Learned weights: whether to normalize each layer first, over all tokens of the batch.
    mix_layer_norm: bool = setting(False)
    # Learned weights: coefficient of their L2 penalty.
    mix_l2: float = setting(0.0, minimum=0)
    # Dropout rate in the head.
    dropout_rate: float = setting(-1.0, minimum=0, below=1, also=(-1, "model.dropout_rate"))
    # Causal models: weight of an auxiliary next-token loss.
    lm_weight: float = setting(0.0, minimum=0)
    # Whether the encoder is not trained and has no dropout: its states are features.
    frozen: bool = derived(False)

    def check(self) -> None:
        super().check()
        for name in ("mix_layer_norm", "mix_l2"):
            if (value := getattr(self, name)) and self.layers not in _MIXES:
                raise UserError(
                    f"{name}={value} has no effect with config.task.layers={self.layers!r}, which"
                    f" has no weights: set {name}={type(value)()}, or config.task.layers to"
                    f" {', '.join(_MIXES)}."
                )

    @property
    def has_bilstm(self) -> bool:
        """Whether there is a BiLSTM on top of the encoder."""
        return self.head.startswith("bilstm")

    @property
    def has_crf(self) -> bool:
        """Whether a tagger scores neighbouring tags."""
        return self.head.endswith("crf")

    @property
    def has_lm_head(self) -> bool:
        """Whether an LM head is applied to the last hidden states, for an auxiliary loss."""
        return self.lm_weight > 0

    def rate(self, model: EncoderConfig) -> float:
        """Returns the dropout rate in the head."""
        return model.dropout_rate if self.dropout_rate < 0 else self.dropout_rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class PooledHeadConfig(HeadConfig):
    """What a head reads if it takes one vector per example."""

    # The vector of an example: cls (its first token), last (its last token, for causal models),
    # mean, max (over its tokens).
    pool: str = setting("cls", choices=("cls", "last", "mean", "max"))
    # Whether BERT's pooler (dense, tanh) follows. It reads the last layer: with a BiLSTM, or with
    # other layers, there is none.
    pooler: bool = setting(True)

    @property
    def has_pooler(self) -> bool:
        """Whether the pooler is applied: it is meant for the last layer, with nothing between."""
        return self.pooler and self.layers == "last" and not self.has_bilstm


def head_dropout(
    head: HeadConfig, model: EncoderConfig, name: str | None = None, shared: bool = False
) -> Dropout:
    """Returns the dropout module before the last dense layer.

    Args:
      head: the head of the task.
      model: configuration of the encoder.
      name: name of the module; None: linen chooses it.
      shared: whether all choices of [batch, choices, features] share a mask.
    """
    return Dropout(head.rate(model), model.prng_impl, (1,) if shared else (), name=name)


@flax.struct.dataclass
class Reading:
    """What a head has read from its encoder, kept for auxiliary losses.

    Attributes:
      hidden: float[rows, seq, hidden], the last hidden states of the encoder.
      scores: logits of the next token at each position; None without `has_lm_head`.
      mix_weights: float32[states] of a `ScalarMix`, before the softmax; None without one.
    """

    hidden: jax.Array
    scores: WordScores | None
    mix_weights: jax.Array | None = None


def read_tokens(
    model: EncoderConfig,
    head: HeadConfig,
    batch: Batch,
    deterministic: bool,
    positions: jax.Array | None = None,
    is_read: jax.Array | None = None,
) -> tuple[jax.Array, Reading]:
    """Returns float32[batch, tokens, features] of the chosen tokens, and what was read.

    Args:
      model: configuration of the encoder.
      head: layers, mix and BiLSTM.
      batch: the encoder's input.
      deterministic: no dropout.
      positions: int32[batch, tokens] that are read; None: all.
      is_read: bool[batch, tokens], which of `positions` are real; the real ones come first. None,
        with `positions` None: all tokens except padding.
    """
    batch = complete_batch(batch)
    encoder = make_encoder(model, name=model.name)
    encoded = encoder(
        batch, deterministic=deterministic or head.frozen, keep_all=head.layers != "last"
    )
    is_real: jax.Array = batch["example_ids"] > 0 if is_read is None else is_read
    x, mix_weights = _features(head, encoded, positions, is_real)
    if head.has_bilstm:
        x = bilstm(model, head, x, is_real.sum(1), deterministic)
    return x, Reading(encoded.hidden, _scores(model, head, encoder, encoded), mix_weights)


def bilstm(
    model: EncoderConfig, head: HeadConfig, x: jax.Array, lengths: jax.Array, deterministic: bool
) -> jax.Array:
    """Returns float32[batch, seq, 2 * lstm_size], the states of a new BiLSTM in both directions.

    As in `torch.nn.LSTM`, a layer reads both directions of the layer below, with dropout between
    layers. The backward direction starts at the last of `lengths` positions, int32[batch]; later
    positions have no effect on them.
    """
    for layer in range(head.lstm_layers):
        if layer:
            x = Dropout(head.rate(model), model.prng_impl)(x, deterministic)
        forward, backward = (
            nn.RNN(nn.OptimizedLSTMCell(head.lstm_size, name=f"lstm_{layer}_{name}"))
            for name in ("forward", "backward")
        )
        both: Any = nn.Bidirectional(forward, backward)
        x = both(x, seq_lengths=lengths)
    return x


def read_pooled(
    model: EncoderConfig, head: PooledHeadConfig, batch: Batch, deterministic: bool
) -> tuple[jax.Array, Reading]:
    """Returns a vector for each example, float[batch, features], and what was read.

    For rows with several examples, the vectors are [batch, examples, features].

    Args:
      model: configuration of the encoder.
      head: layers, mix, BiLSTM and pooling.
      batch: the encoder's input and int32[batch, examples] `cls_positions`.
      deterministic: no dropout.
    """
    batch = complete_batch(batch)
    if not head.has_pooler:
        x, reading = read_tokens(model, head, batch, deterministic)
        return _only(pool(head.pool, x, batch)), reading
    encoder = EncoderWithPooler(model, head.pool, name=model.name)
    encoded, pooled = encoder(batch, deterministic=deterministic)
    return _only(pooled), Reading(encoded.hidden, _scores(model, head, encoder, encoded))


def _only(pooled: jax.Array) -> jax.Array:
    """[batch, examples, features], without the examples axis if each row has one example."""
    return pooled[:, 0] if pooled.shape[1] == 1 else pooled


def _scores(
    model: EncoderConfig, head: HeadConfig, encoder: Encoder | EncoderWithPooler, encoded: Encoded
) -> WordScores | None:
    """The word scores at each position, from the pre-training head; None without `has_lm_head`."""
    if not head.has_lm_head:
        return None
    return LMHead(model, name="masked_lm")(encoded.hidden, encoder.word_embedding())


def _features(
    head: HeadConfig, encoded: Encoded, positions: jax.Array | None, is_read: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """float32[batch, tokens, features] of the chosen layers, and the weights of a mix."""
    states = encoded.all_hidden or (encoded.hidden,)
    if positions is not None:
        states = tuple(jnp.take_along_axis(x, positions[:, :, None], axis=1) for x in states)
    states = tuple(x.astype(jnp.float32) for x in states)
    if head.frozen:
        states = jax.lax.stop_gradient(states)
    if LAYER_CHOICES[head.layers].num_weights(len(states)):
        return ScalarMix(head.layers, head.mix_layer_norm, name="scalar_mix")(states, is_read)
    return choose(head.layers, states, last_first=True), None


class ScalarMix(nn.Module):
    """gamma * sum_i softmax(w)_i * state_i (Peters et al. 2018, equation 1); at first w=0, gamma=1.

    Attributes:
      layers: a row of LAYER_CHOICES that has weights.
      layer_norm: whether each state is normalized first, as bilm-tf can: with one mean and one
        variance over all features of all real tokens of the batch. Outputs of a row then depend on
        the other rows of its batch.
    """

    layers: str = "scalar_mix"
    layer_norm: bool = False

    @nn.compact
    def __call__(
        self, states: tuple[jax.Array, ...], is_token: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Mixes states.

        Args:
          states: states of the embeddings and each layer, float32[batch, seq, hidden] each.
          is_token: bool[batch, seq], which positions the normalization counts.

        Returns:
          float32[batch, seq, hidden], and the weights before the softmax.
        """
        num_weights = LAYER_CHOICES[self.layers].num_weights(len(states))
        weights = self.param("weights", nn.initializers.zeros_init(), (num_weights,))
        gamma = self.param("gamma", nn.initializers.ones_init(), ())
        if self.layer_norm:
            states = tuple(_masked_layer_norm(state, is_token) for state in states)
        return gamma * choose(self.layers, states, weights=nn.softmax(weights)), weights


# The epsilon of bilm-tf.
_MIX_EPSILON = 1e-12


def _masked_layer_norm(x: jax.Array, is_token: jax.Array) -> jax.Array:
    """(x - mean) / sqrt(variance + epsilon), both taken over all features of all real tokens."""
    weights = is_token.astype(x.dtype)[:, :, None]
    count = jnp.maximum(weights.sum() * x.shape[-1], 1.0)
    mean = (x * weights).sum() / count
    variance = (((x - mean) * weights) ** 2).sum() / count
    return (x - mean) * jax.lax.rsqrt(variance + _MIX_EPSILON)
