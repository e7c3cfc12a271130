"""The hyper-parameters of BERT, and the number of parameters that follows from them."""

import dataclasses

ACTIVATIONS = ("gelu_tanh", "gelu")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape and constants of the model; configs/base.py says what each field means.

    Attributes:
      dtype: of activations and matrix products; parameters, normalisations, softmaxes and logits
        are float32 always.
      prng_impl: generator of the bits of dropout.
    """

    vocab_size: int
    pad_vocab_to_multiple_of: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    dropout_rate: float
    attention_dropout_rate: float
    initializer_range: float
    layer_norm_epsilon: float
    activation: str
    remat: bool
    dtype: str = "float32"
    prng_impl: str = "threefry4x32"
    mask_value: float = -10_000.0
    next_sentence: bool = True

    def __post_init__(self):
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by num_heads={self.num_heads}."
            )
        for name, allowed in (("activation", ACTIVATIONS), ("dtype", DTYPES)):
            if (got := getattr(self, name)) not in allowed:
                raise ValueError(f"{name}={got!r} is none of {', '.join(allowed)}.")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table: `vocab_size` rounded up; the rows added mean nothing."""
        multiple = self.pad_vocab_to_multiple_of
        return -(-self.vocab_size // multiple) * multiple


def parameter_count(config: BertConfig, heads: bool = True) -> int:
    """Number of parameters of the encoder with pooler and, if wanted, of the heads.

    The decoder of the masked-LM head is the table of word embeddings, which counts once. Without
    next-sentence prediction there is neither its head nor the pooler.
    """
    hidden, inner, rows = config.hidden_size, config.intermediate_size, config.padded_vocab_size
    dense, layer_norm = hidden * hidden + hidden, 2 * hidden
    embeddings = (rows + config.max_position_embeddings + config.type_vocab_size) * hidden
    layer = 4 * dense + (hidden * inner + inner) + (inner * hidden + hidden) + 2 * layer_norm
    pooler, next_sentence = (dense, 2 * hidden + 2) if config.next_sentence else (0, 0)
    encoder = embeddings + layer_norm + config.num_layers * layer + pooler
    return encoder + heads * ((dense + layer_norm + rows) + next_sentence)
