"""Pooling: a vector for each example of a row, and the pooler of BERT on top of it.

cls    the hidden state of [CLS], the first token of the example (Devlin et al. 2019)
last   that of the last token of the example (Radford et al. 2018)
mean   the mean over all tokens of the example, special ones included
max    the maximum of each feature over the same tokens
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.devices.sharding import split_rows
from bert_jax.models import make_encoder
from bert_jax.models.layers.dense import dense
from bert_jax.models.model import Batch, Encoded, EncoderConfig, complete_batch


def pool(name: str, hidden: jax.Array, batch: Batch) -> jax.Array:
    """Returns float[batch, examples, features], a vector for each example of a row.

    Args:
      name: a key of POOLS.
      hidden: float[batch, seq, features].
      batch: int32[batch, seq] `example_ids`, and int32[batch, examples] `cls_positions`, whose
        shape gives the number of examples per row. An example without tokens gets the state at the
        first position of the row (`cls`, `last`), or zeros.
    """
    return split_rows(POOLS[name](hidden, batch))


def _cls(hidden: jax.Array, batch: Batch) -> jax.Array:
    return jnp.take_along_axis(hidden, batch["cls_positions"][:, :, None], axis=1)


def _last(hidden: jax.Array, batch: Batch) -> jax.Array:
    is_token = _is_token(batch)
    place = jnp.arange(is_token.shape[-1], dtype=jnp.int32)[None, None]
    last = jnp.where(is_token, place, 0).max(axis=-1)
    return jnp.take_along_axis(hidden, last[:, :, None], axis=1)


def _mean(hidden: jax.Array, batch: Batch) -> jax.Array:
    is_token = _is_token(batch).astype(hidden.dtype)
    total = jnp.einsum("bns,bsd->bnd", is_token, hidden)
    return total / jnp.maximum(is_token.sum(axis=-1, keepdims=True), 1)


def _max(hidden: jax.Array, batch: Batch) -> jax.Array:
    is_token = _is_token(batch)[..., None]
    largest = jnp.where(is_token, hidden[:, None], -jnp.inf).max(axis=2)
    return jnp.where(is_token.any(axis=2), largest, 0)


def _is_token(batch: Batch) -> jax.Array:
    """bool[batch, examples, seq], whether a position belongs to an example."""
    numbers = 1 + jnp.arange(batch["cls_positions"].shape[1], dtype=jnp.int32)
    return batch["example_ids"][:, None, :] == numbers[None, :, None]


POOLS: dict[str, Callable[[jax.Array, Batch], jax.Array]] = {
    "cls": _cls,
    "last": _last,
    "mean": _mean,
    "max": _max,
}


_ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": nn.relu,
    "gelu": functools.partial(nn.gelu, approximate=False),
}


class EncoderWithPooler(nn.Module):
    """An encoder, and tanh(dense(pooled hidden states)) (google-research/bert `modeling.py`).

    DistilBERT's classifier uses ReLU and ELECTRA's GELU (with the error function) instead of tanh.

    The parameters of the pooler are at the same level as the encoder's, as in every format of
    BERT's weights: "bert/pooler/kernel", "bert/embeddings/...".

    Attributes:
      config: the encoder's configuration.
      pool: a key of POOLS; BERT's is `cls`.
    """

    config: EncoderConfig
    pool: str = "cls"

    def setup(self):
        self.body = make_encoder(self.config)
        nn.share_scope(self, self.body)
        self.pooler = dense(self.config, self.config.hidden_size)

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool = True,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> tuple[Encoded, jax.Array]:
        """Returns what the encoder returns, and float[batch, examples, hidden].

        Args:
          batch: the encoder's input and int32[batch, examples] `cls_positions`.
          deterministic, keep_all, keep_attention: see `Encoder`.
        """
        batch = complete_batch(batch)
        encoded = self.body(
            batch, deterministic=deterministic, keep_all=keep_all, keep_attention=keep_attention
        )
        pooled = self.pooler(pool(self.pool, encoded.hidden, batch))
        return encoded, split_rows(_ACTIVATIONS[self.config.pooler_activation](pooled))

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]; see `Encoder`."""
        return self.body.word_embedding()
