"""An encoder with the pooler that some heads read: a vector for each example of a row."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import make_encoder
from bert_jax.models.layers.dense import dense
from bert_jax.models.model import Batch, Encoded, EncoderConfig


class EncoderWithPooler(nn.Module):
    """An encoder, and tanh(dense(hidden state of [CLS])) (google-research/bert `modeling.py`).

    The parameters of the pooler are at the same level as the encoder's, as in every format of
    BERT's weights: "bert/pooler/kernel", "bert/embeddings/...".
    """

    config: EncoderConfig

    def setup(self):
        self.body = make_encoder(self.config)
        nn.share_scope(self, self.body)
        self.pooler = dense(self.config, self.config.hidden_size)

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> tuple[Encoded, jax.Array]:
        """Returns what the encoder returns, and float[batch, examples, hidden].

        Args:
          batch: what the encoder takes, and int32[batch, examples] `cls_positions`.
          deterministic, keep_all, keep_attention: see `Encoder`.
        """
        encoded = self.body(
            batch, deterministic=deterministic, keep_all=keep_all, keep_attention=keep_attention
        )
        cls = jnp.take_along_axis(encoded.hidden, batch["cls_positions"][:, :, None], axis=1)
        return encoded, jnp.tanh(self.pooler(cls))

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]; see `Encoder`."""
        return self.body.word_embedding()
