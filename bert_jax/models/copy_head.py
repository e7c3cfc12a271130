"""A head that predicts a masked token by copying a token from elsewhere in its example.

A pointer into the example, mixed with the softmax over the vocabulary by a gate, as in the
pointer-sentinel mixture (Merity et al. 2016, arXiv 1609.07843) and the pointer-generator (See et
al. 2017, arXiv 1704.04368), here for masked tokens:

    query = rms(slot) Wq, key = rms(key) Wk
    attention = softmax(query key^T / sqrt(hidden)), over the positions of the slot's example except
        its own and those that hold [MASK]
    gate = sigmoid(slot u + b), u initialized to 0, b to -2; 0 where there is nothing to copy
    p(word) = (1 - gate) softmax(logits)[word] + gate * attention on positions that hold the word

Shapes: B batch, S seq, P predictions, V words, D hidden.
"""

import math

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.devices.sharding import split_rows
from bert_jax.models.layers.dense import dense
from bert_jax.models.model import Batch, EncoderConfig, activation_dtype

# The gate copies 12 % at first.
_GATE_BIAS = -2.0
# The score of positions and gates that are ruled out: exp(_NEVER) is 0, and no gradient is NaN.
_NEVER = -1e9
# Smaller probabilities count as 0: their logarithm would have an infinite gradient.
_TINY = float(jnp.finfo(jnp.float32).tiny)


@flax.struct.dataclass
class Copies:
    """Where the words of slots may be copied from.

    Attributes:
      ids: int32[batch, seq], the tokens that are copied.
      attention: float32[batch, predictions, seq], sums to 1 over the positions that a slot may
        copy; all 0 if there are none.
      gate: float32[batch, predictions], before the sigmoid.
    """

    ids: jax.Array
    attention: jax.Array
    gate: jax.Array

    def mix(self, log_words: jax.Array) -> jax.Array:
        """Returns the log-probabilities of all words; training needs only that of the label.

        Args:
          log_words: float32[batch, predictions, words], those of the softmax; `ids` are words.
        """

        def scatter(words, ids, attention):  # of a row
            return words.at[:, ids].add(attention)

        copied = jax.vmap(scatter)(jnp.zeros_like(log_words), self.ids, self.attention)
        return log_mixture(log_words, copied, self.gate[..., None])


def log_mixture(log_words: jax.Array, copied: jax.Array, gate: jax.Array) -> jax.Array:
    """log((1 - sigmoid(gate)) exp(log_words) + sigmoid(gate) copied), float32[...] each.

    Finite, with finite gradients, where nothing is copied.
    """
    is_copied = copied > _TINY
    log_copied = jnp.where(is_copied, jnp.log(jnp.where(is_copied, copied, 1.0)), _NEVER)
    return jnp.logaddexp(nn.log_sigmoid(-gate) + log_words, nn.log_sigmoid(gate) + log_copied)


class CopyHead(nn.Module):
    """Attention from masked slots to positions, and a gate between copying and the softmax.

    Attributes:
      config: the encoder's configuration.
      mask_id: id of [MASK]; -1: it does not occur among the ids.
    """

    config: EncoderConfig
    mask_id: int

    @nn.compact
    def __call__(self, slots: jax.Array, keys: jax.Array, batch: Batch) -> Copies:
        """Returns where the words of slots may be copied from.

        Args:
          slots: float[batch, predictions, hidden], hidden states at `masked_lm_positions`.
          keys: float[batch, seq, hidden], hidden states of all positions.
          batch: int32[batch, seq] `input_ids` and `example_ids`, int32[batch, predictions]
            `masked_lm_positions`.
        """
        query = self._project(slots, "query")  # [B, P, D]
        key = self._project(keys, "key")  # [B, S, D]
        scores = jnp.einsum("bpd,bsd->bps", query, key, preferred_element_type=jnp.float32)
        is_source = self._is_source(batch)  # [B, P, S]
        scores = jnp.where(is_source, scores / math.sqrt(query.shape[-1]), _NEVER)
        attention = nn.softmax(scores) * is_source
        kernel = self.param("gate_kernel", nn.initializers.zeros_init(), (slots.shape[-1],))
        bias = self.param("gate_bias", nn.initializers.constant(_GATE_BIAS), (1,))
        gate = slots.astype(jnp.float32) @ kernel + bias[None]  # [B, P]
        gate = jnp.where(is_source.any(-1), gate, _NEVER)
        return Copies(batch["input_ids"], attention, gate)

    def _project(self, x: jax.Array, name: str) -> jax.Array:
        """float[batch, n, hidden] -> the same. The kernel includes the scale of the norm."""
        config, dtype = self.config, activation_dtype(self.config)
        norm = nn.RMSNorm(config.layer_norm_epsilon, dtype=dtype, use_scale=False)
        return split_rows(dense(config, config.hidden_size, name)(norm(split_rows(x))))

    def _is_source(self, batch: Batch) -> jax.Array:
        """bool[batch, predictions, seq]: whether a slot may copy the token of a position."""
        ids, examples, slots = (
            batch[name] for name in ("input_ids", "example_ids", "masked_lm_positions")
        )
        has_word = (examples > 0) & (ids != self.mask_id)  # [B, S]
        example = jnp.take_along_axis(examples, slots, axis=1)  # [B, P]
        is_own = slots[:, :, None] == jnp.arange(ids.shape[1])[None, None]
        return (example[:, :, None] == examples[:, None]) & has_word[:, None] & ~is_own


def copy_flops(config: EncoderConfig, length: int, predictions: float) -> float:
    """FLOPs of the head's matrix products for a row, in a forward pass.

    Args:
      config: the encoder's configuration.
      length: positions of the row.
      predictions: slots of the row.
    """
    hidden = config.hidden_size
    projections = (length + predictions) * hidden**2
    return 2.0 * (projections + predictions * hidden * (length + 1))
