"""Encoders that are embeddings of words and positions, and a stack of Transformer blocks.

BERT and GPT differ in what is added to these embeddings and in the values of the configuration.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.config.encoders import TransformerConfig
from bert_jax.files.errors import UserError
from bert_jax.models.layers.block import STACK_RULES, Stack
from bert_jax.models.layers.cache import Cache, empty_cache
from bert_jax.models.layers.dense import embedding
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.positions import sinusoidal
from bert_jax.models.model import Batch, Encoded, Encoder, Rules, activation_dtype

RULES: Rules = (
    (r"word_embeddings/embedding$", PartitionSpec("tensor", "fsdp")),
    (r"(position|token_type)_embeddings/embedding$", PartitionSpec(None, "fsdp")),
    *STACK_RULES,
)


class Embeddings(nn.Module):
    """Word + position -> dropout.

    Sinusoidal positions are added in place of learned ones; rotary ones are applied in attention.
    """

    config: TransformerConfig

    def setup(self):
        config = self.config
        self.word_embeddings = embedding(config, config.padded_vocab_size)
        if config.positions == "learned":
            self.position_embeddings = embedding(config, config.max_position_embeddings)
        self.dropout = Dropout(config.dropout_rate, config.prng_impl)

    def words_and_positions(self, batch: Batch) -> jax.Array:
        """int32[batch, seq] ids -> float32[batch, seq, hidden], without dropout."""
        x = self.word_embeddings(batch["input_ids"])
        if self.config.positions == "learned":
            x += self.position_embeddings(batch["position_ids"])
        elif self.config.positions == "sinusoidal":
            x += sinusoidal(batch["position_ids"], self.config.hidden_size)
        return x

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """int32[batch, seq] ids -> float32[batch, seq, hidden]."""
        return self.dropout(self.words_and_positions(batch), deterministic)


class StackEncoder(Encoder):
    """Embeddings and a stack of Transformer blocks."""

    config: TransformerConfig

    def setup(self):
        self.embeddings = self.make_embeddings()
        self.encoder = Stack(self.config)

    @nn.nowrap
    def make_embeddings(self) -> Embeddings:
        """Returns the module of the embeddings, which a subclass may replace."""
        return Embeddings(self.config)

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> Encoded:
        """Encodes a batch; see `Encoder`."""
        x = self.embeddings(batch, deterministic)
        return self.encoder(x, batch, deterministic, keep_all, keep_attention)

    def decode(self, batch: Batch, cache: Cache) -> tuple[jax.Array, Cache]:
        """Encodes the positions that follow those of a cache; there is no dropout.

        Args:
          batch: int32[batch, seq] `input_ids`, `example_ids` (1: a token, 0: padding, which follows
            the tokens of its row) and, for BERT, `token_type_ids`. A row may be padding only. With
            the tokens that are stored already, no row may exceed the capacity of the cache.
          cache: of `make_cache`, or of the call before.

        Returns:
          float[batch, seq, hidden], equal to that of `__call__` on the whole rows, and the cache
          with the new positions.
        """
        is_token = batch["example_ids"] > 0
        after = cache.lengths[:, None] + jnp.arange(is_token.shape[1])[None]
        batch = {**batch, "position_ids": jnp.where(is_token, after, 0)}
        x = self.embeddings(batch, True)
        encoded = self.encoder(x, batch, True, False, False, cache)
        assert encoded.cache is not None  # there was one
        return encoded.hidden, encoded.cache

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]."""
        return self.embeddings.word_embeddings.embedding


def make_cache(config: TransformerConfig, batch_size: int, capacity: int) -> Cache:
    """Returns an empty cache for `StackEncoder.decode`.

    Args:
      config: of the encoder.
      batch_size: rows.
      capacity: the largest number of positions of a row.

    Raises:
      UserError: positions attend to later ones, or the encoder has fewer positions.
    """
    if config.attention_pattern != "causal":
        raise UserError(
            f"config.model.attention_pattern={config.attention_pattern!r}: hidden states depend"
            " on later words too, so text"
            " cannot be continued word by word; that needs a model trained with"
            " attention_pattern='causal'."
        )
    if capacity > (longest := config.max_position_embeddings):
        raise UserError(
            f"{capacity} positions are more than the model's {longest}"
            " (config.model.max_position_embeddings)."
        )
    return empty_cache(
        num_layers=config.num_layers,
        batch_size=batch_size,
        capacity=capacity,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        dtype=activation_dtype(config),
    )
