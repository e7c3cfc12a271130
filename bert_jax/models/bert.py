"""BERT's encoder and pooler (Devlin et al. 2019; google-research/bert `modeling.py`)."""

from collections.abc import Mapping

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Embeddings, EncoderLayer, dense

Batch = Mapping[str, jax.Array]


@flax.struct.dataclass
class BertOutputs:
    """What the encoder says about a batch.

    Attributes:
      hidden: float[batch, seq, hidden], the last layer's.
      pooled: float[batch, examples, hidden], of the [CLS] of each example of a row; None in a
        model without next-sentence prediction.
      all_hidden: the embeddings and each layer's hidden states; empty unless asked for.
      attention: each layer's float32[batch, heads, seq, seq] probabilities before dropout; empty
        unless asked for.
    """

    hidden: jax.Array
    pooled: jax.Array | None
    all_hidden: tuple[jax.Array, ...] = ()
    attention: tuple[jax.Array, ...] = ()


class Encoder(nn.Module):
    """The stack of layers."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, x: jax.Array, bias: jax.Array, deterministic: bool, keep_all: bool
    ) -> tuple[jax.Array, tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """Returns the last hidden states, and if `keep_all` all of them and the attention."""
        make_layer = EncoderLayer
        if self.config.remat:
            make_layer = nn.remat(EncoderLayer, static_argnums=(3,))
        all_hidden, attention = [x], []
        for i in range(self.config.num_layers):
            x, probs = make_layer(self.config, name=f"layer_{i}")(x, bias, deterministic)
            all_hidden.append(x)
            attention.append(probs)
        return (x, tuple(all_hidden), tuple(attention)) if keep_all else (x, (), ())


class Bert(nn.Module):
    """Embeddings, encoder and, for next-sentence prediction, pooler."""

    config: BertConfig

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Encoder(self.config)
        if self.config.next_sentence:
            self.pooler = dense(self.config, self.config.hidden_size)

    def __call__(self, batch: Batch, *, deterministic: bool, keep_all: bool = False) -> BertOutputs:
        """Encodes a batch.

        Args:
          batch: int32[batch, seq] `input_ids`, `token_type_ids`, `position_ids` and `example_ids`
            (0 is padding, otherwise which example of the row), and int32[batch, examples]
            `cls_positions`.
          deterministic: no dropout; otherwise a key "dropout" is needed.
          keep_all: return every layer's hidden states and attention too.
        """
        x = self.embeddings(
            batch["input_ids"], batch["token_type_ids"], batch["position_ids"], deterministic
        )
        bias = attention_bias(batch["example_ids"], self.config.mask_value)
        hidden, all_hidden, attention = self.encoder(x, bias, deterministic, keep_all)
        pooled = None
        if self.config.next_sentence:
            cls = jnp.take_along_axis(hidden, batch["cls_positions"][:, :, None], axis=1)
            pooled = jnp.tanh(self.pooler(cls))
        return BertOutputs(hidden, pooled, all_hidden, attention)


def attention_bias(example_ids: jax.Array, mask_value: float) -> jax.Array:
    """float32[batch, 1, seq, seq]: 0 where a position sees another of its example.

    Padding sees nothing of use and is seen by nobody. With one example in a row this is, at all
    positions that are not padding, the original's mask of the keys.
    """
    query, key = example_ids[:, None, :, None], example_ids[:, None, None, :]
    return jnp.where((query == key) & (key != 0), 0.0, jnp.float32(mask_value))
