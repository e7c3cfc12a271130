"""What an encoder is: its batch, its output, its module and its row in `MODELS`."""

import dataclasses
import difflib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.files.errors import UserError

Batch = Mapping[str, jax.Array]
# Adds fields to a batch on the host, just before it goes to the devices.
AddFields = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
# (regular expression to search for in the parameter's path, one mesh axis per dimension).
# The first row that matches applies.
Rules = tuple[tuple[str, PartitionSpec], ...]


def complete_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a batch with all fields that encoders and heads read; given fields stay as they are.

    `input_ids` alone is one example per row without padding:

        {"input_ids": ids, "attention_mask": mask}  # 1: token, 0: padding

    Args:
      batch: int32[..., seq] `input_ids` and any of the fields below. `attention_mask` is replaced
        by `example_ids`. Fields with other names stay as they are.

    Returns:
      int32[..., seq] unless noted:
        token_type_ids: 0.
        example_ids: the number, from 1, of the example in its row, 0 for padding; default 1.
          Positions attend to positions of their own example only.
        position_ids: the distance to the first token of the example.
        cls_positions: int32[..., examples], the first token of each example; default one example.

    Raises:
      UserError: the batch is not a mapping; `input_ids` are missing, not integers, or have no batch
        axis; a field is not an array, has the wrong shape or dtype, or has a name that resembles
        that of a known field; both `attention_mask` and `example_ids` are given.
    """
    _check_fields(batch)
    batch, ids = dict(batch), batch["input_ids"]
    mask = batch.pop("attention_mask", None)
    if "token_type_ids" not in batch:
        batch["token_type_ids"] = jnp.zeros_like(ids)
    if "example_ids" not in batch:
        batch["example_ids"] = jnp.ones_like(ids) if mask is None else mask.astype(ids.dtype)
    if "position_ids" not in batch:
        examples = batch["example_ids"]
        is_same = examples[..., :, None] == examples[..., None, :]
        first = jnp.argmax(is_same, axis=-1)  # the first of several maxima
        places = jnp.broadcast_to(jnp.arange(ids.shape[-1]), ids.shape)
        batch["position_ids"] = (places - first).astype(ids.dtype)
    if "cls_positions" not in batch:
        batch["cls_positions"] = jnp.zeros((*ids.shape[:-1], 1), ids.dtype)
    return batch


def _input_ids(batch: Mapping[str, Any]) -> jax.Array:
    """Returns the token ids of a batch, after checking their shape and dtype."""
    if "input_ids" not in batch:
        names = ", ".join(map(repr, itertools.islice(batch, _NAMES_SHOWN))) or "no field"
        raise UserError(
            f"The batch has {names}, but no 'input_ids', int32[batch, seq]: Model.batch makes one"
            " of texts."
        )
    ids = batch["input_ids"]
    if ids.ndim < 2 or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise UserError(
            f"input_ids are {ids.dtype}{list(ids.shape)} instead of int32[batch, seq]; one text is"
            " a batch of one row, input_ids[None]."
        )
    return ids


# Fields of a batch with one number per token, which a user may give.
_TOKEN_FIELDS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "example_ids")
# Names that other libraries use for them.
_OTHER_NAMES = {
    **dict.fromkeys(
        ("mask", "attn_mask", "input_mask", "padding_mask", "attention"), "attention_mask"
    ),
    **dict.fromkeys(("segment_ids", "token_types", "segments"), "token_type_ids"),
}
_NAMES_SHOWN = 6


def _check_fields(batch: Any) -> None:
    """Raises UserError for errors that are visible while tracing; further fields are allowed."""
    if not isinstance(batch, Mapping):
        raise UserError(
            f"The batch is of type {type(batch).__name__}: give a dict of arrays, such as"
            " Model.batch makes of texts."
        )
    for name in (name for name in batch if name not in _TOKEN_FIELDS):
        similar = difflib.get_close_matches(str(name), _TOKEN_FIELDS, n=1, cutoff=0.8)
        if meant := _OTHER_NAMES.get(str(name)) or next(iter(similar), ""):
            raise UserError(f"The batch has {name!r}, which is not read: did you mean {meant!r}?")
    given = {name: batch[name] for name in _TOKEN_FIELDS if name in batch}
    for name, array in given.items():
        if not isinstance(array, jax.Array | np.ndarray):
            raise UserError(
                f"{name} is of type {type(array).__name__}: give an array of jax or numpy; a"
                ' tokenizer of transformers makes it with return_tensors="np".'
            )
    ids = _input_ids(batch)
    for name, array in given.items():
        is_whole = jnp.issubdtype(array.dtype, jnp.integer) or array.dtype == bool
        if array.shape != ids.shape or not is_whole:
            raise UserError(
                f"{name} is {array.dtype}{list(array.shape)}: give int32{list(ids.shape)}, a number"
                " for each of the input_ids."
            )
    if "cls_positions" in batch and batch["cls_positions"].shape[:-1] != ids.shape[:-1]:
        raise UserError(
            f"cls_positions has the shape {list(batch['cls_positions'].shape)}, and input_ids"
            f" {list(ids.shape)}: give a row for each row."
        )
    if "attention_mask" in given and "example_ids" in given:
        raise UserError(
            "The batch has both attention_mask and example_ids, which both say what is padding:"
            " give one of them."
        )


@flax.struct.dataclass
class Encoded:
    """The output of an encoder.

    Attributes:
      hidden: float[batch, seq, hidden], of the last layer; with `read_positions` in the batch
        float[batch, positions, hidden], of these positions only.
      all_hidden: the embeddings and the hidden states of each layer, float[batch, seq, hidden]
        each; the last one is `hidden`. Empty unless requested.
      attention: float32[batch, heads, seq, seq] of each layer, the probabilities before dropout.
        Empty unless requested.
      cache: cache for the next call of `decode`; None in all other calls.
      attended: float[batch, seq, hidden], the hidden states between the last block's attention and
        its feed-forward network; None unless a Transformer has a copy head.
    """

    hidden: jax.Array
    all_hidden: tuple[jax.Array, ...] = ()
    attention: tuple[jax.Array, ...] = ()
    cache: Any = None
    attended: jax.Array | None = None


def activation_dtype(config: EncoderConfig) -> jnp.dtype:
    """Returns the dtype of hidden states."""
    return jnp.dtype("float32" if config.rounds_products else config.dtype)


class Encoder(nn.Module):
    """The interface of every encoder module.

    Attributes:
      config: configuration, of the class in the encoder's row of `MODELS`.
    """

    config: Any

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool = True,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> Encoded:
        """Encodes a batch.

        Args:
          batch: int32[batch, seq] `input_ids`; `complete_batch` fills in missing fields. With
            int32[batch, positions] `read_positions`, a Transformer's last block is applied to these
            only, and they attend to all positions. With a copy head, which reads all positions,
            only the feed-forward network of that block is restricted to them.
          deterministic: no dropout; otherwise a key "dropout" is required.
          keep_all: also return the embeddings and the hidden states of each layer.
          keep_attention: also return the attention probabilities of each layer.

        Raises:
          UserError: if attention probabilities are requested and the encoder has none.
        """
        raise NotImplementedError

    def decode(self, batch: Batch, cache: Any) -> tuple[jax.Array, Any]:
        """Encodes the positions after those of a cache; for left-to-right encoders only.

        Returns float[batch, seq, hidden] and the new cache; see `Bert.decode`.
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
      renews_special_tokens: whether fine-tuning begins with new, random embeddings of the
        tokenizer's `cls_id`, `sep_id` and `end_id`, as for GPT, which is pre-trained without them.
    """

    config: type[EncoderConfig]
    encoder: type[Encoder]
    rules: Rules
    flops_per_token: Callable[[Any, int], float]
    add_fields: Callable[[Any, Any], AddFields] | None = None
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
