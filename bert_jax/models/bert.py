"""BERT's encoder (Devlin et al. 2019; google-research/bert `modeling.py`)."""

import dataclasses

import flax.linen as nn
import jax
from jax.sharding import PartitionSpec

from bert_jax.formats import bert_names
from bert_jax.models.layers.block import STACK_RULES, Stack, flops_per_token
from bert_jax.models.layers.dense import embedding
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.layers.positions import sinusoidal
from bert_jax.models.model import Batch, Encoded, Encoder, Model, Rules
from bert_jax.models.transformer import TransformerConfig

RULES: Rules = (
    (r"word_embeddings/embedding$", PartitionSpec("tensor", "fsdp")),
    (r"(position|token_type)_embeddings/embedding$", PartitionSpec(None, "fsdp")),
    *STACK_RULES,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerConfig):
    """Shape and constants of BERT; the defaults of the other fields are BERT's too.

    Attributes:
      name: "bert".
      type_vocab_size: number of token types.
    """

    name: str = "bert"
    type_vocab_size: int


class Embeddings(nn.Module):
    """Word + position + token type -> layer norm -> dropout.

    Sinusoidal positions are added in place of learned ones; rotary ones are applied in attention.
    """

    config: BertConfig

    def setup(self):
        config = self.config
        self.word_embeddings = embedding(config, config.padded_vocab_size)
        if config.positions == "learned":
            self.position_embeddings = embedding(config, config.max_position_embeddings)
        self.token_type_embeddings = embedding(config, config.type_vocab_size)
        self.layer_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout_rate, config.prng_impl)

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """int32[batch, seq] ids -> float[batch, seq, hidden]."""
        x = self.word_embeddings(batch["input_ids"])
        if self.config.positions == "learned":
            x += self.position_embeddings(batch["position_ids"])
        elif self.config.positions == "sinusoidal":
            x += sinusoidal(batch["position_ids"], self.config.hidden_size)
        x += self.token_type_embeddings(batch["token_type_ids"])
        return self.dropout(self.layer_norm(x), deterministic)


class Bert(Encoder):
    """Embeddings and a stack of Transformer blocks."""

    config: BertConfig

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Stack(self.config)

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

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]."""
        return self.embeddings.word_embeddings.embedding


BERT = Model(
    config=BertConfig,
    encoder=Bert,
    rules=RULES,
    flops_per_token=flops_per_token,
    formats=bert_names.TABLES,
)
