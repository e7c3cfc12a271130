"""GPT's encoder, a left-to-right Transformer (Radford et al. 2018; openai/finetune-transformer-lm).

The published model has 12 layers, hidden size 768, 12 heads, an inner layer of 3072, 512 positions
and 40,478 pieces. Unlike BERT's, its embeddings have neither token types nor a layer norm.
"""

from bert_jax.config.encoders import GptConfig
from bert_jax.models.bert import RULES, Bert, Embeddings, Stack, flops_per_token
from bert_jax.models.model import Model


class Gpt(Bert):
    """BERT's modules, whose embeddings have neither token types nor a layer norm."""

    config: GptConfig

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Stack(self.config)


GPT = Model(GptConfig, Gpt, RULES, flops_per_token, renews_special_tokens=True)
