"""Dense layers and tables of embeddings, and their initial values."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer

from bert_jax.models.model import EncoderConfig

_INITIALIZERS = {
    "truncated_normal": nn.initializers.truncated_normal,
    "normal": nn.initializers.normal,
}


def initializer(config: EncoderConfig) -> Initializer:
    """Returns the function (key, shape, dtype) -> initial values of kernels and tables.

    As in BERT's `modeling.py`, a truncated normal is not rescaled to its standard deviation.
    """
    return _INITIALIZERS[config.initializer](config.initializer_range)


def dense(config: EncoderConfig, features: int, name: str | None = None) -> nn.Dense:
    """Returns a dense layer, float[batch, n, in] -> dtype[batch, n, features].

    The kernel starts from `initializer`, the bias, if config.biases, from zero. Parameters are
    float32.
    """
    return nn.Dense(
        features,
        use_bias=config.biases,
        dtype=jnp.dtype(config.dtype),
        kernel_init=initializer(config),
        dot_general=lambda x, kernel, *_, **__: matmul(x, kernel),
        name=name,
    )


def embedding(config: EncoderConfig, rows: int, name: str | None = None) -> nn.Embed:
    """Returns a table float32[rows, hidden] with the initial values of `dense`."""
    return nn.Embed(rows, config.hidden_size, embedding_init=initializer(config), name=name)


@jax.custom_vjp
def matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """float[batch, n, in] @ float[in, out] -> float[batch, n, out].

    The gradient of the kernel has a custom rule, which computes it in the layout that the
    optimizer needs. jax's own rule computes its transpose, which takes XLA twice as long on CPUs.
    """
    return x @ kernel


def _matmul_forward(x, kernel):
    return x @ kernel, (x, kernel)


def _matmul_backward(residuals, grads):
    x, kernel = residuals
    # Without the barrier XLA fuses the computation of `x` into the product and repeats it for each
    # element, transposed: a training step on CPUs takes up to 1.5 times as long.
    rows = jax.lax.optimization_barrier(x.reshape(-1, x.shape[-1]))
    kernel_grads = jnp.einsum("ri,ro->io", rows, grads.reshape(-1, grads.shape[-1]))
    return grads @ kernel.T, kernel_grads


matmul.defvjp(_matmul_forward, _matmul_backward)
