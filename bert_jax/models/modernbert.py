"""ModernBERT's encoder (Warner et al. 2024): BERT's, with other values of its fields."""

from bert_jax.config.encoders import ModernBertConfig
from bert_jax.models.bert import RULES, Bert, flops_per_token
from bert_jax.models.model import Model

MODERNBERT = Model(ModernBertConfig, Bert, RULES, flops_per_token)
