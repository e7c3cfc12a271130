"""An encoder in one file: each word's embedding, and a network of the mean of its segment.

It has neither positions nor attention, and none of the fields of a Transformer.
"""

import dataclasses

import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.models.layers.dense import dense, embedding
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Encoded, Encoder, EncoderConfig, Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class BagConfig(EncoderConfig):
    name: str = "bag"
    context_size: int = 16  # features of the inner layer


class Bag(Encoder):
    """words -> norm(words + dense(tanh(dense(mean of the segment's words))))."""

    config: BagConfig

    def setup(self):
        self.words = embedding(self.config, self.config.padded_vocab_size)
        self.inner = dense(self.config, self.config.context_size)
        self.outer = dense(self.config, self.config.hidden_size)
        self.norm = layer_norm(self.config)
        self.dropout = Dropout(self.config.dropout_rate, self.config.prng_impl)

    def __call__(self, batch, *, deterministic=True, keep_all=False, keep_attention=False):
        if keep_attention:
            raise ValueError("A bag of words has no attention probabilities.")
        words = self.dropout(self.words(batch["input_ids"]), deterministic)
        segments = 2 * batch["example_ids"] + batch["token_type_ids"]  # padding: 0
        is_same = (segments[:, :, None] == segments[:, None, :]).astype(words.dtype)
        mean = is_same @ words / is_same.sum(-1, keepdims=True)
        hidden = self.norm(words + self.outer(jnp.tanh(self.inner(mean))))
        return Encoded(hidden, (words, hidden) if keep_all else ())

    def word_embedding(self):
        return self.words.embedding


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
    flops_per_token=lambda c, length: 2.0 * c.hidden_size * (2 * c.context_size + length),
)
