"""BERT's encoder (Devlin et al. 2019; google-research/bert `modeling.py`)."""

import flax.linen as nn
import jax

from bert_jax.config.encoders import BertConfig
from bert_jax.models.layers.block import flops_per_token
from bert_jax.models.layers.dense import embedding
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Batch, Model
from bert_jax.models.stack_encoder import RULES, Embeddings, StackEncoder


class BertEmbeddings(Embeddings):
    """Word + position + token type, if any -> layer norm -> dropout; see `Embeddings`."""

    config: BertConfig

    def setup(self):
        super().setup()
        if self.config.type_vocab_size:
            self.token_type_embeddings = embedding(self.config, self.config.type_vocab_size)
        self.layer_norm = layer_norm(self.config)

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """int32[batch, seq] ids -> float[batch, seq, hidden]."""
        x = self.words_and_positions(batch)
        if self.config.type_vocab_size:
            x += self.token_type_embeddings(batch["token_type_ids"])
        return self.dropout(self.layer_norm(x), deterministic)


class Bert(StackEncoder):
    """Embeddings and a stack of Transformer blocks."""

    config: BertConfig

    @nn.nowrap
    def make_embeddings(self) -> Embeddings:
        return BertEmbeddings(self.config)


BERT = Model(
    config=BertConfig,
    encoder=Bert,
    rules=RULES,
    flops_per_token=flops_per_token,
)
