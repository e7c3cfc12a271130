"""ModernBERT's encoder (Warner et al. 2024): BERT's, with other values of its fields."""

from bert_jax.config.encoders import ModernBertConfig
from bert_jax.models.bert import Bert
from bert_jax.models.layers.block import flops_per_token
from bert_jax.models.model import Model
from bert_jax.models.stack_encoder import RULES

MODERNBERT = Model(
    config=ModernBertConfig,
    encoder=Bert,
    rules=RULES,
    flops_per_token=flops_per_token,
)
