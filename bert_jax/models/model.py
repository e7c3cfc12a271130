"""What an encoder is: its configuration, its output, its module and its row in `MODELS`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.files.errors import UserError
from bert_jax.models.layers.cache import Cache
from bert_jax.text.tokenization import Tokenizer

ACTIVATIONS = ("gelu_tanh", "gelu")
DTYPES = ("float32", "bfloat16", "bfloat16_products")
INITIALIZERS = ("truncated_normal", "normal")
LM_HEADS = ("transform", "tied")
NORMS = ("layer_norm", "rms_norm")

Batch = Mapping[str, jax.Array]
# (regular expression that is searched in the parameter's path, one mesh axis for each dimension).
# The first row that matches decides.
Rules = tuple[tuple[str, PartitionSpec], ...]
# Adds fields to a batch on the host, just before it goes to the devices.
AddFields = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


@flax.struct.dataclass
class Encoded:
    """The output of an encoder.

    Attributes:
      hidden: float[batch, seq, hidden], of the last layer.
      all_hidden: the embeddings and the hidden states of each layer, float[batch, seq, hidden]
        each; the last one is `hidden`. Empty unless requested.
      attention: float32[batch, heads, seq, seq] of each layer, the probabilities before dropout.
        Empty unless requested.
      cache: that the next call of `decode` continues from; None in all other calls.
    """

    hidden: jax.Array
    all_hidden: tuple[jax.Array, ...] = ()
    attention: tuple[jax.Array, ...] = ()
    cache: Cache | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The fields that every encoder has, and that heads read.

    Attributes:
      name: of the encoder, a key of `MODELS`; also the top-level name of its parameters.
      vocab_size: number of entries of the vocabulary.
      pad_vocab_to_multiple_of: the table of word embeddings has a multiple of this many rows.
      hidden_size: features of a hidden state.
      num_layers: hidden states after the embeddings.
      max_position_embeddings: the longest sequence.
      dropout_rate: of hidden states, in the encoder and before the heads.
      initializer_range: standard deviation of the normal distribution that kernels and tables
        start from, before truncation.
      layer_norm_epsilon: added to the variance.
      activation: of ACTIVATIONS.
      dtype: of DTYPES, of activations and matrix products; parameters, normalisation statistics,
        softmaxes and logits are always float32. `bfloat16_products`: the operands of dense layers
        and of the product with the table of words are rounded to bfloat16, all else is float32.
      prng_impl: generator of the random bits of dropout.
      initializer: `truncated_normal`, cut at two standard deviations and not rescaled (Devlin et
        al. 2019, `modeling.py`); `normal` (Radford et al. 2018).
      lm_head: of a model that predicts words: `transform`, dense -> activation -> layer norm ->
        product with the table of word embeddings, plus a bias (Devlin et al. 2019); `tied`, the
        product alone (Radford et al. 2018).
      norm: `layer_norm` (Ba et al. 2016); `rms_norm`, which neither subtracts the mean nor adds a
        bias (Zhang & Sennrich 2019).
      biases: whether dense layers and layer norms of the encoder, and those before a product with
        the table of words, have biases.

    Raises:
      UserError: for a value that is not allowed.
    """

    name: str
    vocab_size: int
    pad_vocab_to_multiple_of: int
    hidden_size: int
    num_layers: int
    max_position_embeddings: int
    dropout_rate: float
    initializer_range: float
    layer_norm_epsilon: float
    activation: str
    dtype: str = "float32"
    prng_impl: str = "threefry4x32"
    initializer: str = "truncated_normal"
    lm_head: str = "transform"
    norm: str = "layer_norm"
    biases: bool = True

    def __post_init__(self):
        self._check_one_of(
            activation=ACTIVATIONS,
            dtype=DTYPES,
            initializer=INITIALIZERS,
            lm_head=LM_HEADS,
            norm=NORMS,
        )

    def _check_one_of(self, **allowed: tuple[str, ...]) -> None:
        for field, values in allowed.items():
            if (got := getattr(self, field)) not in values:
                raise UserError(f"{field}={got!r} is none of {', '.join(values)}.")

    @property
    def activation_dtype(self) -> jnp.dtype:
        """The dtype of hidden states."""
        return jnp.dtype("float32" if self.rounds_products else self.dtype)

    @property
    def rounds_products(self) -> bool:
        """Whether operands of dense layers are rounded to bfloat16, and hidden states are not."""
        return self.dtype == "bfloat16_products"

    @property
    def has_word_table(self) -> bool:
        """Whether the encoder has a table of word embeddings, `Encoder.word_embedding`."""
        return True

    @property
    def has_directions(self) -> bool:
        """Whether the halves of a hidden state are those of two directions of reading."""
        return False

    @property
    def is_causal(self) -> bool:
        """Whether no position sees a later one."""
        return False

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the table of word embeddings; those past `vocab_size` belong to no word."""
        multiple = self.pad_vocab_to_multiple_of
        return -(-self.vocab_size // multiple) * multiple


class Encoder(nn.Module):
    """The interface of every encoder module.

    Attributes:
      config: of the class that the encoder's row in `MODELS` names.
    """

    config: Any

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> Encoded:
        """Encodes a batch.

        Args:
          batch: int32[batch, seq] `input_ids`, `token_type_ids`, `position_ids` and `example_ids`
            (0 is padding, otherwise the number of the example in the row).
          deterministic: no dropout; otherwise a key "dropout" is required.
          keep_all: also return the embeddings and the hidden states of each layer.
          keep_attention: also return the attention probabilities of each layer.

        Raises:
          UserError: if attention probabilities are requested and the encoder has none.
        """
        raise NotImplementedError

    def decode(self, batch: Batch, cache: Cache) -> tuple[jax.Array, Cache]:
        """Encodes the positions after those of a cache; of encoders that read from left to right.

        Returns float[batch, seq, hidden] and the new cache; see `StackEncoder.decode`.
        """
        raise NotImplementedError

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden], the table of word embeddings that heads are tied to."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Model:
    """A row of `MODELS`.

    Attributes:
      config: class of the configuration.
      encoder: class of the module.
      rules: PartitionSpecs of all parameters of the encoder, over the mesh axes `fsdp` and
        `tensor`. Parameters of heads have their own, `heads.HEAD_RULES`.
      flops_per_token: function (config, sequence length) -> FLOPs per token of the encoder's matrix
        products in a forward pass; a training step needs three times that number.
      add_fields: function (config, tokenizer) -> function that adds the fields which only this
        encoder reads to a batch on the host; raises ValueError for a tokenizer that does not fit.
        None: the encoder reads the fields of `data.batch` only, and all ids of the tokenizer
        are rows of its table of word embeddings.
      example_fields: function (config, batch) -> those fields of a batch of examples, of any
        values; for the shapes of parameters. None as above.
      renews_special_tokens: whether fine-tuning begins with new, random embeddings of the
        tokenizer's `cls_id`, `sep_id` and `end_id`, as GPT's does, whose pre-training has none.
    """

    config: type[EncoderConfig]
    encoder: type[Encoder]
    rules: Rules
    flops_per_token: Callable[[Any, int], float]
    add_fields: Callable[[Any, Tokenizer], AddFields] | None = None
    example_fields: Callable[[Any, Batch], dict[str, jax.Array]] | None = None
    renews_special_tokens: bool = False


def parameter_shapes(module: nn.Module, batch: Batch) -> Any:
    """The tree of a module's parameters as ShapeDtypeStructs; no array is created.

    Args:
      module: called as `module(batch, deterministic=True)`.
      batch: arrays or ShapeDtypeStructs of any size.
    """

    def init(batch: Batch) -> Any:
        return module.init(jax.random.key(0), batch, deterministic=True)["params"]

    return jax.eval_shape(init, batch)


def parameter_count(module: nn.Module, batch: Batch) -> int:
    """The number of a module's parameters; see `parameter_shapes`."""
    return sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(module, batch)))
