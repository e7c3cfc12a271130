"""The fields that all encoders have, and those of all Transformers, independent of jax."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.config.group import Group, derived, setting
from bert_jax.files.errors import UserError

ACTIVATIONS = ("gelu_tanh", "gelu", "relu_squared")
DTYPES = ("float32", "bfloat16", "bfloat16_products")
PRNG_IMPLS = ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "mulxor")


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
    # `gelu_tanh` (the released code since February 2019), `gelu` (with the error function), or
    # `relu_squared`, max(x, 0)^2 (So et al. 2021), the cheapest.
    activation: str = setting("gelu_tanh", choices=ACTIVATIONS)
    # Between hidden states and the embedding table, for token predictions: `transform` (BERT's
    # dense, activation, layer norm, and a bias), or `tied` (GPT's: the product only).
    lm_head: str = setting("transform", choices=("transform", "tied"))
    # Whether the model has a pooler and a next-sentence head, with its loss.
    next_sentence: bool = setting(False)
    # `config.dtype`: see there. Parameters, normalization statistics, softmaxes and logits are
    # always float32.
    dtype: str = derived("float32")
    # `config.prng_impl`: see there.
    prng_impl: str = derived("threefry4x32")

    @property
    def rounds_products(self) -> bool:
        """Whether operands of dense layers are rounded to bfloat16, and hidden states are not."""
        return self.dtype == "bfloat16_products"

    # Whether the encoder has an embedding table of words, `Encoder.word_embedding`.
    has_word_table = True
    # Whether the two halves of a hidden state belong to two reading directions.
    has_directions = False
    # Whether masked tokens may be copied from their example.
    has_copy_head = False
    # Whether no position attends to a later one.
    is_causal = False
    # Rows of the table of learned positions before that of the first position.
    position_offset = 0
    # Whether an embedding depends on the type of its token.
    reads_token_types = False
    # Activation of the pooler: `tanh`, `relu` or `gelu`.
    pooler_activation = "tanh"

    @property
    def embedding_size(self) -> int:
        """Features of a row of the embedding tables."""
        return self.hidden_size

    @classmethod
    def finetuning_values(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values of a fine-tuning run that follow from the encoder, by dotted name.

        Args:
          fields: the encoder's fields, as far as they are known.
        """
        return {}

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
    # Whether masked tokens may also be copied from their example: a pointer to its tokens, mixed
    # with the softmax over the vocabulary by a gate. Only masked-LM pre-training has this head.
    copy_head: bool = setting(False)
    # Whether the masked-LM head reads the position before the masked token, from which a model of
    # next tokens predicts it too (GPT-BERT: Charpentier & Samuel 2024); see `causal_share`.
    predicts_next: bool = setting(False, added_later=True)
    # Width of a depthwise convolution over the embeddings and over the input of each attention, an
    # odd number of positions of one example (So et al. 2021 convolve queries, keys and values); it
    # starts as the identity. 0: none.
    convolution: int = setting(0, minimum=0)
    # Whether pre-training on masked tokens applies the last block to the predicted positions only,
    # and to [CLS] where it is read. Results differ in the bits of its dropout only. With
    # copy_head, which reads all positions after its attention, only its feed-forward network.
    last_layer_predicted_only: bool = setting(False)
    # Implementation of attention: einsum (ours); dot_product (`jax.nn.dot_product_attention` by
    # XLA); cudnn (kernels for NVIDIA GPUs and bfloat16 that store no probabilities); splash (a
    # kernel for TPUs that stores none; einsum on other devices). Only einsum can apply dropout to
    # probabilities or return them.
    attention: str = setting("einsum", choices=("einsum", "dot_product", "cudnn", "splash"))
    # Added to the attention scores of masked positions; the value is the released code's.
    mask_value: float = setting(-10_000.0, any_number=True, below=0)
    # Recompute activations in the backward pass: less memory, a third more computation.
    remat: bool = setting(False)
    # What is kept and not recomputed: `nothing`, or the `products` with weight matrices, which are
    # most of the work.
    remat_policy: str = setting("nothing", choices=("nothing", "products"))
    # Whether the encoder is trained on next tokens in a phase of a run: attention is causal, and
    # convolutions leave out later positions.
    reads_forward: bool = derived(False)

    @property
    def has_copy_head(self) -> bool:
        """Whether masked tokens may be copied from their example."""
        return self.copy_head

    @property
    def is_causal(self) -> bool:
        """Whether no position attends to a later one."""
        return self.attention_pattern == "causal" or self.reads_forward

    @classmethod
    def finetuning_values(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields.get("attention_pattern") == "causal":
            return {"task.pool": "last"}  # which has seen all others
        # RoBERTa, with its norm after the sub-layers, has no pairs either, but a published recipe.
        if fields.get("norm_place") != "pre" or fields.get("next_sentence"):
            return {}
        # Pre-training gave the first token no task, and a new pooler learns too slowly from few
        # examples: docs/log/recipes.md, the texts after 20 minutes on novels.
        return {"task.pool": "mean", "task.pooler": False}

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
        if self.attention != "einsum" and self.attention_dropout_rate:
            raise UserError(
                f"attention={self.attention!r} has no dropout of probabilities, and"
                f" attention_dropout_rate={self.attention_dropout_rate}: set"
                " attention_dropout_rate=0, or attention='einsum'."
            )
        if self.copy_head and self.is_causal:
            raise UserError(
                "copy_head=True copies masked tokens, and attention_pattern='causal' predicts next"
                " ones: set copy_head=False."
            )
        if self.predicts_next and self.attention_pattern == "causal":
            raise UserError(
                "predicts_next=True is about masked tokens, and attention_pattern='causal' always"
                " predicts next ones: set predicts_next=False."
            )
        self._check_convolution()
        if not self.first_layer_norm and self.norm_place != "pre":
            raise UserError("first_layer_norm=False needs norm_place='pre'.")

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

    def _check_convolution(self) -> None:
        if self.convolution and self.convolution % 2 == 0:
            raise UserError(f"convolution={self.convolution} must be odd, such as 3, or 0: none.")
        if self.convolution and self.attention_pattern == "causal":
            raise UserError(
                f"convolution={self.convolution} reads later positions, which"
                " attention_pattern='causal' does not permit: set convolution=0."
            )
