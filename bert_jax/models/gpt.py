"""GPT's encoder, a left-to-right Transformer (Radford et al. 2018; openai/finetune-transformer-lm).

The published model has 12 layers, hidden size 768, 12 heads, an inner layer of 3072, 512 positions
and 40,478 pieces. Unlike BERT's, its embeddings have neither token types nor a layer norm.
"""

import dataclasses

from bert_jax.models.layers.block import flops_per_token
from bert_jax.models.model import Model
from bert_jax.models.stack_encoder import RULES, StackEncoder
from bert_jax.models.transformer import TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(TransformerConfig):
    """Shape and constants of GPT; the defaults are those of its `train.py`, sizes have none.

    Attributes:
      name: "gpt".
    """

    name: str = "gpt"
    pad_vocab_to_multiple_of: int = 1
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    initializer: str = "normal"
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-5
    activation: str = "gelu_tanh"
    remat: bool = False
    attention_pattern: str = "causal"
    mask_value: float = -1e9
    lm_head: str = "tied"


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
