"""Dense layers and tables of embeddings, and their initial values."""

import functools

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
    """Returns a dense layer, float[batch, n, in] -> activation_dtype[batch, n, features].

    The kernel starts from `initializer`, the bias, if config.biases, from zero. Parameters are
    float32.
    """
    product = rounded_matmul if config.rounds_products else matmul
    return nn.Dense(
        features,
        use_bias=config.biases,
        dtype=config.activation_dtype,
        kernel_init=initializer(config),
        dot_general=lambda x, kernel, *_, **__: product(x, kernel),
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rounded_matmul(x: jax.Array, kernel: jax.Array, axis: int = 0) -> jax.Array:
    """Product of operands that are rounded to bfloat16; sums and result are float32.

    The same holds for the products of its gradient. On CPUs with instructions for bfloat16 it takes
    about half the time of a float32 product, where activations in bfloat16 take longer.

    Args:
      x: float[..., in].
      kernel: float32[in, out], or float32[out, in] if `axis` is 1.
      axis: of the kernel, that is summed over.

    Returns:
      float32[..., out].
    """
    return _rounded_forward(x, kernel, axis)[0]


def _rounded_forward(x, kernel, axis):
    rows, kernel = x.reshape(-1, x.shape[-1]).astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    y = _product(rows, kernel, 1, axis).reshape(*x.shape[:-1], kernel.shape[1 - axis])
    return y, (rows, kernel, jnp.empty((0,), x.dtype))


def _rounded_backward(axis, residuals, grads):
    rows, kernel, of_x = residuals
    gradient_rows = grads.reshape(-1, grads.shape[-1]).astype(jnp.bfloat16)
    x_grads = _product(gradient_rows, kernel, 1, 1 - axis)
    left, right = (gradient_rows, rows) if axis else (rows, gradient_rows)
    kernel_grads = _product(_transpose(left), right, 1, 0)
    return x_grads.reshape(*grads.shape[:-1], -1).astype(of_x.dtype), kernel_grads


rounded_matmul.defvjp(_rounded_forward, _rounded_backward)


def _product(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """bfloat16[...] of two dimensions each -> float32, summed over one axis of each."""
    axes = (((x_axis,), (y_axis,)), ((), ()))
    return jax.lax.dot_general(x, y, axes, preferred_element_type=jnp.float32)


def _transpose(x: jax.Array, width: int = 16) -> jax.Array:
    """Returns the transpose of a matrix.

    XLA would fold a plain transpose into the product that reads it, and has no fast product of that
    form for bfloat16 on CPUs: it takes twice as long. Two steps with a barrier are not folded.
    """
    rows, columns = x.shape
    if columns % width:
        return x.T
    panels = x.reshape(rows, columns // width, width).transpose(1, 0, 2)
    return jax.lax.optimization_barrier(panels).transpose(0, 2, 1).reshape(columns, rows)
