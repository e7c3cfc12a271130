"""GPT's encoder, a left-to-right Transformer (Radford et al. 2018; openai/finetune-transformer-lm).

The published model has 12 layers, hidden size 768, 12 heads, an inner layer of 3072, 512 positions
and 40,478 pieces. Unlike BERT's, its embeddings have neither token types nor a layer norm.
"""

from bert_jax.config.encoders import GptConfig
from bert_jax.models.layers.block import flops_per_token
from bert_jax.models.model import Model
from bert_jax.models.stack_encoder import RULES, StackEncoder


class Gpt(StackEncoder):
    """Embeddings of words and positions, and a stack of Transformer blocks."""

    config: GptConfig


GPT = Model(
    config=GptConfig,
    encoder=Gpt,
    rules=RULES,
    flops_per_token=flops_per_token,
    renews_special_tokens=True,
)
