"""ModernBERT's encoder (Warner et al. 2024): BERT's, with other values of its fields."""

import dataclasses

from bert_jax.models.bert import Bert, BertConfig
from bert_jax.models.layers.block import flops_per_token
from bert_jax.models.model import Model
from bert_jax.models.stack_encoder import RULES


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """Shape and constants of ModernBERT; the defaults are those of transformers, sizes have none.

    Attributes:
      name: "modernbert".
    """

    name: str = "modernbert"
    pad_vocab_to_multiple_of: int = 1
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-5
    activation: str = "gelu"
    remat: bool = False
    norm_place: str = "pre"
    first_layer_norm: bool = False
    biases: bool = False
    type_vocab_size: int = 0
    positions: str = "rotary"
    rotary_base: float = 160_000.0
    window_rotary_base: float = 10_000.0
    attention_pattern: str = "window"
    attention_window: int = 64
    global_every: int = 3
    mask_value: float = -1e9
    feed_forward: str = "gated"


MODERNBERT = Model(
    config=ModernBertConfig,
    encoder=Bert,
    rules=RULES,
    flops_per_token=flops_per_token,
)
