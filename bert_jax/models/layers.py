"""The parts of a Transformer encoder as in BERT: post-norm, dropout everywhere, GELU.

Shape suffixes: B batch, S query position, T key position, D hidden, H heads, K head_dim.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig


def dense(config: BertConfig, features: int, name: str | None = None) -> nn.Dense:
    """A dense layer that starts as BERT's: truncated normal, not rescaled; bias zero."""
    return nn.Dense(
        features,
        dtype=jnp.dtype(config.dtype),
        kernel_init=nn.initializers.truncated_normal(config.initializer_range),
        dot_general=lambda x, kernel, *_, **__: matmul(x, kernel),
        name=name,
    )


@jax.custom_vjp
def matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """float[batch, n, in] @ float[in, out].

    With a rule of its own for the gradient of the kernel, made in the layout that it is needed in:
    jax's makes the transpose, for which XLA's code on CPUs takes twice as long. The barrier keeps
    XLA from making `x` anew, element by element and transposed: a step on CPUs took up to half as
    long again.
    """
    return x @ kernel


def _matmul_forward(x, kernel):
    return x @ kernel, (x, kernel)


def _matmul_backward(residuals, grads):
    x, kernel = residuals
    rows = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]))
    kernel_grads = jnp.einsum("ri,ro->io", rows, grads.reshape(-1, grads.shape[-1]))
    return grads @ kernel.T, kernel_grads


matmul.defvjp(_matmul_forward, _matmul_backward)


def layer_norm(config: BertConfig, name: str | None = None) -> nn.LayerNorm:
    """Layer normalisation with float32 statistics and the variance of the centred values."""
    return nn.LayerNorm(
        config.layer_norm_epsilon,
        dtype=jnp.dtype(config.dtype),
        use_fast_variance=False,
        name=name,
    )


def activate(config: BertConfig, x: jax.Array) -> jax.Array:
    """GELU, exact or by tanh; keeps only its input for the backward pass."""
    gelu = functools.partial(nn.gelu, approximate=config.activation == "gelu_tanh")
    return jax.checkpoint(gelu)(x)


class Dropout(nn.Module):
    """Sets values to zero at random and scales the others so that the mean stays.

    Attributes:
      rate: share of the values that are dropped, 0 <= rate < 1.
      prng_impl: generator of the random bits, seeded from the key "dropout".
    """

    rate: float
    prng_impl: str = "threefry2x32"

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """float[...] -> float[...]."""
        if deterministic or self.rate == 0:
            return x
        # One 32-bit word for each value: the kept share is a multiple of 2**-32.
        bits = random_bits(self.make_rng("dropout"), x.shape, self.prng_impl)
        kept = bits >= jnp.uint32(round(self.rate * 2**32))
        return jnp.where(kept, x / (1 - self.rate), 0)


def random_bits(key: jax.Array, shape: tuple[int, ...], prng_impl: str) -> jax.Array:
    """uint32[shape] of a generator that is faster than the one all keys are derived with.

    Keys stay threefry2x32: XLA fuses the arithmetic of the others, and would derive a key anew for
    every value that is drawn with it.
    """
    data = jax.random.key_data(key)
    # "threefry4x32" and "rbg" take four words, "philox2x32" one, the others two.
    size = {"threefry4x32": 4, "rbg": 4, "philox2x32": 1}.get(prng_impl, 2)
    data = jnp.concatenate([data, data ^ jnp.uint32(0x9E3779B9)])[:size]
    return jax.random.bits(jax.random.wrap_key_data(data, impl=prng_impl), shape)


class Embeddings(nn.Module):
    """Word + position + token type -> layer norm -> dropout."""

    config: BertConfig

    def setup(self):
        config = self.config

        def table(rows: int) -> nn.Embed:
            return nn.Embed(
                rows,
                config.hidden_size,
                embedding_init=nn.initializers.truncated_normal(config.initializer_range),
            )

        self.word_embeddings = table(config.padded_vocab_size)
        self.position_embeddings = table(config.max_position_embeddings)
        self.token_type_embeddings = table(config.type_vocab_size)
        self.layer_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout_rate, config.prng_impl)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        position_ids: jax.Array,
        deterministic: bool,
    ) -> jax.Array:
        """int32[batch, seq] each -> float[batch, seq, hidden]."""
        x = self.word_embeddings(input_ids)
        x += self.position_embeddings(position_ids)
        x += self.token_type_embeddings(token_type_ids)
        return self.dropout(self.layer_norm(x), deterministic)


class SelfAttention(nn.Module):
    """Attention over all heads -> dense -> dropout -> add -> layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, x_BSD: jax.Array, bias_B1ST: jax.Array, deterministic: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Returns float[batch, seq, hidden] and the probabilities float32[batch, heads, seq, seq].

        `bias_B1ST` is added to the scores; the probabilities are those before dropout.
        """
        config = self.config

        def project(name: str) -> jax.Array:
            y_BSD = dense(config, config.hidden_size, name)(x_BSD)
            return y_BSD.reshape(*y_BSD.shape[:2], config.num_heads, config.head_dim)

        query_BSHK, key_BTHK, value_BTHK = project("query"), project("key"), project("value")
        scores_BHST = jnp.einsum(
            "bshk,bthk->bhst", query_BSHK, key_BTHK, preferred_element_type=jnp.float32
        )
        scores_BHST = scores_BHST / math.sqrt(config.head_dim) + bias_B1ST
        probs_BHST = nn.softmax(scores_BHST)
        dropped_BHST = Dropout(config.attention_dropout_rate, config.prng_impl)(
            probs_BHST, deterministic
        )
        y_BSHK = jnp.einsum("bhst,bthk->bshk", dropped_BHST.astype(value_BTHK.dtype), value_BTHK)
        y_BSD = dense(config, config.hidden_size, "output")(y_BSHK.reshape(x_BSD.shape))
        y_BSD = Dropout(config.dropout_rate, config.prng_impl)(y_BSD, deterministic)
        return layer_norm(config, "layer_norm")(x_BSD + y_BSD), probs_BHST


class EncoderLayer(nn.Module):
    """Self-attention -> dense -> GELU -> dense -> dropout -> add -> layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, x_BSD: jax.Array, bias_B1ST: jax.Array, deterministic: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Returns float[batch, seq, hidden] and the attention probabilities."""
        config = self.config
        x_BSD, probs_BHST = SelfAttention(config, name="attention")(x_BSD, bias_B1ST, deterministic)
        y = activate(config, dense(config, config.intermediate_size, "intermediate")(x_BSD))
        y_BSD = dense(config, config.hidden_size, "output")(y)
        y_BSD = Dropout(config.dropout_rate, config.prng_impl)(y_BSD, deterministic)
        return layer_norm(config, "layer_norm")(x_BSD + y_BSD), probs_BHST
