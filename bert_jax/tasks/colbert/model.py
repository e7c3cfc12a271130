"""ColBERT's model: an encoder, a projection of each token, and MaxSim between texts."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.devices.sharding import split_rows
from bert_jax.models import make_encoder
from bert_jax.models.model import Batch, EncoderConfig, complete_batch
from bert_jax.models.task_heads import IMPOSSIBLE, flat_batch
from bert_jax.tasks.losses import split_positions

# Maximum number of products of tokens in memory, over all devices: 128 MiB.
MAX_PRODUCTS = 1 << 25
# Initial kernel of the projection: uniform between +-1 / sqrt(hidden), as in sentence-transformers.
_KERNEL = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
# Minimum of a squared norm, for the vectors of padding.
_SMALLEST = 1e-24


@flax.struct.dataclass
class ColbertOutputs:
    """The output of a model that gives a vector for each token.

    Attributes:
      vectors: float32[batch, texts, seq, features] of length 1; 0 for padding.
      is_token: bool[batch, texts, seq].
    """

    vectors: jax.Array
    is_token: jax.Array


class ColbertModel(nn.Module):
    """Vectors of the tokens of each text.

    Attributes:
      model: configuration of the encoder.
      features: dimensions of a vector.
    """

    model: EncoderConfig
    features: int

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> ColbertOutputs:
        """Returns the vectors of all tokens.

        Args:
          batch: what encoders take, with the texts as an axis, int32[batch, texts, seq]; or
            int32[batch, seq], whose outputs have an axis of one text.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        batch = complete_batch(batch)
        ids = batch["example_ids"]
        shape = ids.shape if ids.ndim > 2 else (len(ids), 1, ids.shape[-1])
        batch = flat_batch(batch) if ids.ndim > 2 else batch
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden.astype(jnp.float32)
        vectors = Projection(self.features, name="projection")(hidden)
        square = jnp.sum(vectors**2, axis=-1, keepdims=True)
        is_token = ids.reshape(shape) > 0
        vectors = (vectors * jax.lax.rsqrt(jnp.maximum(square, _SMALLEST))).reshape(*shape, -1)
        return ColbertOutputs(vectors * is_token[..., None], is_token)


class Projection(nn.Module):
    """A dense layer in float32, without a bias."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32[..., hidden] -> float32[..., features]."""
        kernel = self.param("kernel", _KERNEL, (x.shape[-1], self.features))
        return split_rows(split_rows(x) @ kernel)


def max_similarities(outputs: ColbertOutputs, max_products: int = MAX_PRODUCTS) -> jax.Array:
    """Returns the MaxSim of first texts with all candidates, float32[batch, candidates].

    It is the sum, over the tokens of the first text, of the largest dot product with a token of the
    candidate. The candidates are the second texts of all rows, then their third ones.

    With more products of tokens, the tokens of the first texts are processed in equal parts, one
    after the other, and the backward pass recomputes the products of each part.

    Args:
      outputs: what the model returns for examples of two or three texts.
      max_products: maximum number of products in memory, over all devices.
    """
    features = outputs.vectors.shape[-1]
    candidates, is_there = (
        jnp.swapaxes(array[:, 1:], 0, 1).reshape(-1, *array.shape[2:])
        for array in (outputs.vectors, outputs.is_token)
    )
    tokens, absent = candidates.reshape(-1, features), ~is_there
    rows, seq = outputs.is_token[:, 0].shape

    def add(sums: jax.Array, vectors: jax.Array, is_token: jax.Array) -> jax.Array:
        products = jnp.matmul(vectors, tokens.T, precision=jax.lax.Precision.HIGHEST)
        products = products.reshape(*vectors.shape[:2], *absent.shape)
        best = jnp.where(absent, IMPOSSIBLE, products).max(axis=-1)
        return sums + (best * is_token[..., None]).sum(axis=1)

    num_parts = -(-seq // max(1, max_products // (rows * len(tokens))))
    sums = jnp.zeros((rows, len(candidates)), jnp.float32)
    parts = [
        split_positions(array[:, 0], num_parts) for array in (outputs.vectors, outputs.is_token)
    ]
    if num_parts == 1:
        return add(sums, *(part[0] for part in parts))
    part = jax.checkpoint(add)
    return jax.lax.scan(lambda sums, x: (part(sums, *x), None), sums, tuple(parts))[0]
