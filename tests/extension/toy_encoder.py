"""An encoder in one file: each word's embedding, and a network of the mean of its segment.

It has neither positions nor attention, and none of the fields of a Transformer.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.models.layers.dense import dense, embedding
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Batch, Encoded, Encoder, EncoderConfig, Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class BagConfig(EncoderConfig):
    """A bag of words.

    Attributes:
      context_size: features of the inner layer.
    """

    context_size: int


class Bag(Encoder):
    """words -> norm(words + dense(tanh(dense(mean of the segment's words))))."""

    config: BagConfig

    def setup(self):
        config = self.config
        self.words = embedding(config, config.padded_vocab_size)
        self.inner = dense(config, config.context_size)
        self.outer = dense(config, config.hidden_size)
        self.norm = layer_norm(config)
        self.dropout = Dropout(config.dropout_rate, config.prng_impl)

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> Encoded:
        """Encodes a batch; see `Encoder`."""
        if keep_attention:
            raise ValueError("A bag of words has no attention probabilities.")
        words = self.dropout(self.words(batch["input_ids"]), deterministic)
        segments = 2 * batch["example_ids"] + batch["token_type_ids"]  # padding: 0
        is_same = (segments[:, :, None] == segments[:, None, :]).astype(words.dtype)
        mean = is_same @ words / is_same.sum(-1, keepdims=True)
        hidden = self.norm(words + self.outer(jnp.tanh(self.inner(mean))))
        return Encoded(hidden, (words, hidden) if keep_all else ())

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]."""
        return self.words.embedding


def flops_per_token(config: BagConfig, sequence_length: int) -> float:
    kernels = 2 * config.hidden_size * config.context_size
    return 2.0 * (kernels + config.hidden_size * sequence_length)


BAG = Model(
    config=BagConfig,
    encoder=Bag,
    rules=(
        (r"^bag/words/embedding$", PartitionSpec("tensor", "fsdp")),
        (r"^bag/inner/kernel$", PartitionSpec("fsdp", "tensor")),
        (r"^bag/inner/bias$", PartitionSpec("tensor")),
        (r"^bag/outer/kernel$", PartitionSpec("tensor", "fsdp")),
        (r"^bag/(outer/bias|norm/.*)$", PartitionSpec()),
    ),
    flops_per_token=flops_per_token,
)
