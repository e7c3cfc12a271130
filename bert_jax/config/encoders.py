"""The configurations of encoders: sizes and numerics, independent of jax.

`BertConfig()` is BERT-Base; `BertConfig.tiny()` to `BertConfig.large()` are the published sizes
(Devlin et al. 2019; Turc et al. 2019).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from bert_jax.config.group import Group, setting
from bert_jax.files.errors import UserError

ACTIVATIONS = ("gelu_tanh", "gelu")
DTYPES = ("float32", "bfloat16", "bfloat16_products")
PRNG_IMPLS = ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(Group):
    """The fields that every encoder has and that heads read."""

    # The encoder: a row of bert_jax.models.MODELS; also the top-level name of its parameters.
    name: str = setting("")
    # Rows of the embedding table, and the size of a vocabulary that is trained.
    vocab_size: int = setting(30_522)
    # Rounds the rows of the embedding table up to a multiple (128 suits tensor cores).
    pad_vocab_to_multiple_of: int = setting(1)
    # Features of a hidden state.
    hidden_size: int = setting(768)
    # Layers above the embeddings.
    num_layers: int = setting(12)
    # Maximum sequence length.
    max_position_embeddings: int = setting(512)
    # Dropout rate of embeddings and sub-layer outputs, and before the heads.
    dropout_rate: float = setting(0.1, minimum=0, below=1)
    # Initial weights: truncated_normal (cut at two standard deviations and not rescaled, as in
    # BERT's released code), normal (Radford et al. 2018).
    initializer: str = setting("truncated_normal", choices=("truncated_normal", "normal"))
    # Standard deviation of the normal distribution of initial weights, before truncation.
    initializer_range: float = setting(0.02)
    # Added to the variance in layer normalization.
    layer_norm_epsilon: float = setting(1e-12)
    # Normalization: layer_norm (Ba et al. 2016); rms_norm, which neither subtracts the mean nor
    # adds a bias (Zhang & Sennrich 2019).
    norm: str = setting("layer_norm", choices=("layer_norm", "rms_norm"))
    # Whether dense layers and norms have biases, in the encoder and before the product with the
    # embedding table.
    biases: bool = setting(True)
    # `gelu_tanh` (the released code since February 2019) or `gelu` (with the error function).
    activation: str = setting("gelu_tanh", choices=ACTIVATIONS)
    # Between hidden states and the embedding table, for token predictions: `transform` (BERT's
    # dense, activation, layer norm, and a bias), or `tied` (GPT's: the product only).
    lm_head: str = setting("transform", choices=("transform", "tied"))
    # Whether the model has a pooler and a next-sentence head, with its loss.
    next_sentence: bool = setting(False)
    # `config.dtype`: see there. Parameters, normalization statistics, softmaxes and logits are
    # always float32.
    dtype: str = setting("float32", choices=DTYPES, of_run=True)
    # `config.prng_impl`: see there.
    prng_impl: str = setting("threefry4x32", choices=PRNG_IMPLS, of_run=True)

    @property
    def rounds_products(self) -> bool:
        """Whether operands of dense layers are rounded to bfloat16, and hidden states are not."""
        return self.dtype == "bfloat16_products"

    @property
    def has_word_table(self) -> bool:
        """Whether the encoder has an embedding table of words, `Encoder.word_embedding`."""
        return True

    @property
    def has_directions(self) -> bool:
        """Whether the two halves of a hidden state belong to two reading directions."""
        return False

    @property
    def is_causal(self) -> bool:
        """Whether no position attends to a later one."""
        return False

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table; those past `vocab_size` belong to no token."""
        multiple = self.pad_vocab_to_multiple_of
        return -(-self.vocab_size // multiple) * multiple


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(EncoderConfig):
    """The fields of an encoder that is a stack of Transformer blocks; the defaults are BERT's."""

    # Attention heads; they divide `hidden_size` evenly.
    num_heads: int = setting(12)
    # Features of the inner layer of the feed-forward network.
    intermediate_size: int = setting(3072)
    # Dropout rate of attention probabilities.
    attention_dropout_rate: float = setting(0.1, minimum=0, below=1)
    # Layer normalization after each sub-layer and its residual sum (`post`, Vaswani et al. 2017),
    # or before each sub-layer and once after the last block (`pre`, Xiong et al. 2020).
    norm_place: str = setting("post", choices=("post", "pre"))
    # Whether, with `pre`, a norm precedes the first sub-layer too; False leaves it to the norm of
    # the embeddings (Warner et al. 2024).
    first_layer_norm: bool = setting(True)
    # Whether queries and keys are normalized over the features of a head, with a scale, before they
    # are rotated (Dehghani et al. 2023).
    query_key_norm: bool = setting(False)
    # Position information: learned (a table, Devlin et al. 2019), sinusoidal (fixed sines and
    # cosines, Vaswani et al. 2017), rotary (rotated queries and keys, Su et al. 2021), none.
    positions: str = setting("learned", choices=("learned", "sinusoidal", "rotary", "none"))
    # With rotary positions: the longest wavelength is 2 pi times this.
    rotary_base: float = setting(10_000.0)
    # The same in blocks that attend to a window; 0: rotary_base.
    window_rotary_base: float = setting(0.0, minimum=0)
    # Positions of its example that a position attends to: bidirectional (all), causal (itself and
    # earlier ones), window (those at most attention_window away).
    attention_pattern: str = setting("bidirectional", choices=("bidirectional", "causal", "window"))
    # With attention_pattern `window`: the maximum distance, at least 1; otherwise 0.
    attention_window: int = setting(0, minimum=0)
    # With attention_pattern `window`: every n-th block, the first included, attends to all
    # positions (Warner et al. 2024); 0: none.
    global_every: int = setting(0, minimum=0)
    # Feed-forward sub-layer: plain, gated (Shazeer 2020).
    feed_forward: str = setting("plain", choices=("plain", "gated"))
    # Implementation of attention: einsum (ours); dot_product (`jax.nn.dot_product_attention` by
    # XLA); cudnn (the same by cuDNN: GPUs and bfloat16 only); splash (a kernel for TPUs that stores
    # no probabilities; einsum on other devices). Only einsum can apply dropout to probabilities or
    # return them.
    attention: str = setting("einsum", choices=("einsum", "dot_product", "cudnn", "splash"))
    # Added to the attention scores of masked positions; the value is the released code's.
    mask_value: float = setting(-10_000.0, any_number=True, below=0)
    # Recompute activations in the backward pass: less memory, a third more computation.
    remat: bool = setting(False)
    # What is not recomputed then: `nothing`, or the `products` with kernels, most of the work.
    remat_policy: str = setting("nothing", choices=("nothing", "products"))
    # Compile one block and apply it in a loop over the parameters of all, which are stored as
    # without it: faster to compile. Dropout draws other bits, and in bfloat16 embeddings without a
    # norm are rounded.
    scan_layers: bool = setting(False)

    @property
    def is_causal(self) -> bool:
        """Whether no position attends to a later one."""
        return self.attention_pattern == "causal"

    @property
    def head_dim(self) -> int:
        """Features of an attention head."""
        return self.hidden_size // self.num_heads

    def is_global(self, layer: int) -> bool:
        """Returns whether a block, counted from 0, attends to all positions despite a window."""
        return self.global_every > 0 and layer % self.global_every == 0

    def check(self) -> None:
        super().check()
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"hidden_size={self.hidden_size} is not divisible by num_heads={self.num_heads}."
            )
        self._check_positions()
        self._check_window()
        self._check_attention()
        if not self.first_layer_norm and self.norm_place != "pre":
            raise UserError("first_layer_norm=False needs norm_place='pre'.")
        if self.scan_layers and (self.global_every or not self.first_layer_norm):
            raise UserError(
                f"scan_layers=True needs blocks that are all alike, not global_every="
                f"{self.global_every} and first_layer_norm={self.first_layer_norm}: set"
                " scan_layers=False."
            )

    def _check_positions(self) -> None:
        if self.positions == "rotary" and self.head_dim % 2:
            raise UserError(
                f"positions='rotary' needs an even hidden_size / num_heads, not"
                f" {self.hidden_size} / {self.num_heads} = {self.head_dim}: change one of them."
            )
        if self.positions == "sinusoidal" and self.hidden_size % 2:
            raise UserError(
                f"positions='sinusoidal' needs an even hidden_size, not {self.hidden_size}."
            )

    def _check_window(self) -> None:
        pattern, window = self.attention_pattern, self.attention_window
        if pattern == "window":
            if window < 1:
                raise UserError(
                    f"attention_window={window} must be at least 1 with attention_pattern='window':"
                    " set it to the number of visible positions on each side."
                )
        elif window:
            raise UserError(
                f"attention_window={window} has no effect with attention_pattern={pattern!r}: set"
                " attention_window=0, or attention_pattern='window'."
            )
        elif self.global_every or self.window_rotary_base:
            raise UserError(
                f"global_every={self.global_every} and window_rotary_base="
                f"{self.window_rotary_base} have no effect with attention_pattern={pattern!r}: set"
                " both to 0, or attention_pattern='window'."
            )

    def _check_attention(self) -> None:
        if self.attention != "einsum" and self.attention_dropout_rate:
            raise UserError(
                f"attention={self.attention!r} has no dropout of probabilities, and"
                f" attention_dropout_rate={self.attention_dropout_rate}: set"
                " attention_dropout_rate=0, or attention='einsum'."
            )
        if self.attention == "cudnn" and self.dtype != "bfloat16":
            raise UserError(
                f"attention='cudnn' needs dtype='bfloat16', not {self.dtype!r}: change dtype, or"
                " set attention='dot_product'."
            )


# (layers, hidden size); a head has 64 features, the inner layer four times the hidden size.
_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerConfig):
    """BERT-Base of the paper (Devlin et al. 2019) by default."""

    name: str = "bert"
    # Token types; 0: none.
    type_vocab_size: int = setting(2, minimum=0)
    next_sentence: bool = True

    def check(self) -> None:
        super().check()
        if self.type_vocab_size == 1:
            raise UserError(
                "type_vocab_size=1 is too few: a row has two segments (0: no token types)."
            )

    @classmethod
    def of_size(cls, size: str, **changes: Any) -> Self:
        """Returns the configuration of a published size: tiny, mini, small, medium, base, large."""
        layers, hidden = _SIZES[size]
        sizes = {"num_layers": layers, "hidden_size": hidden, "num_heads": hidden // 64}
        return cls(**{**sizes, "intermediate_size": 4 * hidden, **changes})

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """Returns BERT-Tiny: 2 layers, hidden size 128."""
        return cls.of_size("tiny", **changes)

    @classmethod
    def mini(cls, **changes: Any) -> Self:
        """Returns BERT-Mini: 4 layers, hidden size 256."""
        return cls.of_size("mini", **changes)

    @classmethod
    def small(cls, **changes: Any) -> Self:
        """Returns BERT-Small: 4 layers, hidden size 512."""
        return cls.of_size("small", **changes)

    @classmethod
    def medium(cls, **changes: Any) -> Self:
        """Returns BERT-Medium: 8 layers, hidden size 512."""
        return cls.of_size("medium", **changes)

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """Returns BERT-Base: 12 layers, hidden size 768."""
        return cls.of_size("base", **changes)

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """Returns BERT-Large: 24 layers, hidden size 1024."""
        return cls.of_size("large", **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """ModernBERT-Base (Warner et al. 2024): BERT's fields with the values of transformers."""

    name: str = "modernbert"
    vocab_size: int = 50_368
    num_layers: int = 22
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    layer_norm_epsilon: float = 1e-5
    activation: str = "gelu"
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
    next_sentence: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(TransformerConfig):
    """GPT (Radford et al. 2018), with the values of openai/finetune-transformer-lm `train.py`.

    The vocabulary has 40,478 pieces and three special tokens. There are no token types.
    """

    name: str = "gpt"
    vocab_size: int = 40_481
    initializer: str = "normal"
    layer_norm_epsilon: float = 1e-5
    attention_pattern: str = "causal"
    mask_value: float = -1e9
    lm_head: str = "tied"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElmoConfig(EncoderConfig):
    """ELMo (Peters et al. 2018), with the values of allenai/bilm-tf.

    A hidden state is the output of both directions, `hidden_size` = 2 * `projection_size` features.
    `activation` and `layer_norm_epsilon` concern heads only, `dropout_rate` the input of each layer
    and the output.
    """

    name: str = "elmo"
    # Words of the softmax, the most frequent ones; the others are the unknown word. Also the rows
    # of the embedding table, with tokens=embeddings.
    vocab_size: int = 793_471
    hidden_size: int = 1024
    num_layers: int = 2
    activation: str = "gelu"
    # What words are made of: characters, or embeddings (a table).
    tokens: str = setting("characters", choices=("characters", "embeddings"))
    # Features of a character.
    character_size: int = setting(16)
    # Maximum characters of a word, with markers of its begin and end.
    max_characters: int = setting(50)
    # (width, number) of the filters over characters.
    filters: tuple[tuple[int, int], ...] = setting(
        ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    )
    # Activation of the character CNN.
    cnn_activation: str = setting("relu", choices=("relu", "tanh"))
    # Highway layers after the filters.
    highway_layers: int = setting(2, minimum=0)
    # Cells of an LSTM; its output is projected to half of hidden_size.
    cell_size: int = setting(4096)
    # Maximum absolute value of the cells; 0: no limit.
    cell_clip: float = setting(3.0, minimum=0)
    # Maximum absolute value of the projected output; 0: no limit.
    projection_clip: float = setting(3.0, minimum=0)
    # From the second layer on, a layer's input is added to its output.
    skip_connections: bool = setting(True)

    @property
    def projection_size(self) -> int:
        """Features of a word and of the output of one direction."""
        return self.hidden_size // 2

    @property
    def has_word_table(self) -> bool:
        """Whether the encoder has an embedding table of words, `Encoder.word_embedding`."""
        return self.tokens == "embeddings"

    @property
    def has_directions(self) -> bool:
        """Whether the two halves of a hidden state belong to two reading directions."""
        return True

    @property
    def has_projection(self) -> bool:
        """Whether the output of an LSTM is projected."""
        return self.cell_size > self.projection_size

    def check(self) -> None:
        super().check()
        if self.rounds_products:
            raise UserError(
                f"dtype={self.dtype!r} is not available for LSTMs: set float32 or bfloat16."
            )
        if self.hidden_size % 2:
            raise UserError(
                f"hidden_size={self.hidden_size} is odd, and each direction has half of its"
                " features: set an even number."
            )
        if self.cell_size < self.projection_size:
            raise UserError(
                f"cell_size={self.cell_size} is below hidden_size / 2 = {self.projection_size},"
                " the features of each direction: change one of them."
            )
        if not self.filters:
            raise UserError("filters=() is empty: name (width, number), ...")
        if any(not 0 < width <= self.max_characters or n < 1 for width, n in self.filters):
            raise UserError(
                f"filters={self.filters!r} need widths from 1 to max_characters="
                f"{self.max_characters}, and at least one filter each."
            )


ENCODERS: dict[str, type[EncoderConfig]] = {
    "bert": BertConfig,
    "modernbert": ModernBertConfig,
    "gpt": GptConfig,
    "elmo": ElmoConfig,
}


def make_encoder_config(fields: Mapping[str, Any]) -> EncoderConfig:
    """Returns the configuration of an encoder.

    Args:
      fields: values by name; `name`, a key of ENCODERS, chooses the class and is "bert" by default.
        Fields that are not given have their defaults.

    Raises:
      UserError: for an unknown name, unknown fields, or values that are not allowed.
    """
    name = fields.get("name", "bert")
    if name not in ENCODERS:
        raise UserError(f"name={name!r} must be one of {', '.join(ENCODERS)}.")
    known = [item.name for item in dataclasses.fields(ENCODERS[name])]
    if unknown := [field for field in fields if field not in known]:
        raise UserError(
            f"name={name!r} has no field {', '.join(unknown)}. Available: {', '.join(known)}."
        )
    return ENCODERS[name](**fields)
