"""ModernBERT's encoder (Warner et al. 2024): BERT's, with other values of its fields."""

from bert_jax.config.encoders import ModernBertConfig
from bert_jax.models.bert import RULES, Bert, flops_per_token
from bert_jax.models.model import Model


class ModernBert(Bert):
    """BERT's modules, with the values of ModernBERT's configuration."""

    config: ModernBertConfig


MODERNBERT = Model(ModernBertConfig, ModernBert, RULES, flops_per_token)
