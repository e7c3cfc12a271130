"""Operations in a form that XLA for CPUs computes faster: the same values, up to rounding.

The matrix products of dense layers and logits have custom derivatives, since jax's own rules are
slow on CPUs, and dropout masks are drawn in a loop. The measurements are in docs/log/system.md.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

_PARTS = 4  # of a mask; 2 and 8 take the same time


def draw_once(
    draw: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], key: jax.Array
) -> jax.Array:
    """Returns draw(key), a mask bool[shape], computed once.

    XLA for CPUs removes barriers and draws the bits again for each use of a mask, in code that is
    not vectorized. It does not fuse loops: with a loop that draws a part of the rows in each
    iteration, a training step takes 0.86 to 0.96 times as long.
    """
    axis = len(shape) - 2
    parts = math.gcd(_PARTS, shape[axis]) if axis > 0 else 1
    if parts == 1:
        return draw(key)
    rows = shape[axis] // parts

    def fill(part: jax.Array, kept: jax.Array) -> jax.Array:
        drawn = jax.lax.dynamic_slice_in_dim(draw(key), part * rows, rows, axis)
        return jax.lax.dynamic_update_slice_in_dim(kept, drawn, part * rows, axis)

    return jax.lax.fori_loop(0, parts, fill, jnp.zeros(shape, bool))


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


@jax.custom_vjp
def rounded_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Product of operands that are rounded to bfloat16; sums and result are float32.

    The same holds for the products of its gradient. On CPUs that gain from bfloat16
    (`processor`) it takes about half the time of a float32 product, and activations in bfloat16
    would take longer.

    float32[..., in] @ float32[in, out] -> float32[..., out].
    """
    return _rounded_forward(x, kernel)[0]


def _rounded_forward(x, kernel):
    rows, kernel = x.reshape(-1, x.shape[-1]).astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _product(rows, kernel, 1, 0).reshape(*x.shape[:-1], -1), (rows, kernel)


def _rounded_backward(residuals, grads):
    rows, kernel = residuals
    gradient_rows = grads.reshape(-1, grads.shape[-1]).astype(jnp.bfloat16)
    x_grads = _product(gradient_rows, kernel, 1, 1).reshape(*grads.shape[:-1], -1)
    return x_grads, _product(_transpose(rows), gradient_rows, 1, 0)


rounded_matmul.defvjp(_rounded_forward, _rounded_backward)


def word_logits(x: jax.Array, table: jax.Array, bias: jax.Array, rounds: bool) -> jax.Array:
    """x @ table.T + bias, with sums in float32.

    Args:
      x: float[..., hidden]; float32 if `rounds`.
      table: float32[words, hidden].
      bias: float32[words].
      rounds: whether operands are rounded as in `rounded_matmul`, in the gradient of the bias too;
        otherwise the table is cast to the dtype of x.

    Returns:
      float32[..., words].
    """
    rows = x.reshape(-1, x.shape[-1])
    if rounds:
        logits = _rounded_logits(rows, table, bias)
    else:
        table = table.astype(x.dtype)
        product = jnp.einsum("rd,vd->rv", rows, table, preferred_element_type=jnp.float32)
        logits = _add_bias(product, bias)
    return logits.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """float32[rows, out] + float32[out]; the gradient of the bias is computed as a product.

    As a sum over the rows of a wide matrix it takes XLA six times as long on CPUs.
    """
    return x + bias[None]


def _add_bias_backward(_, grads):
    ones = jnp.ones((1, grads.shape[0]), grads.dtype)
    return grads, jnp.matmul(ones, grads, precision="highest")[0]


_add_bias.defvjp(lambda x, bias: (x + bias[None], None), _add_bias_backward)


@jax.custom_vjp
def _rounded_logits(x: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
    return _rounded_logits_forward(x, table, bias)[0]


def _rounded_logits_forward(x, table, bias):
    rows, table = x.astype(jnp.bfloat16), table.astype(jnp.bfloat16)
    return _product(rows, table, 1, 1) + bias[None], (rows, table)


def _rounded_logits_backward(residuals, grads):
    rows, table = residuals
    grads = grads.astype(jnp.bfloat16)
    x_grads = _product(grads, table, 1, 0)
    # The small matrix and the result are transposed: the barrier keeps XLA from folding the latter
    # transpose into the product.
    table_grads = jax.lax.optimization_barrier(_product(_transpose(rows), grads, 1, 0)).T
    # For a single row of ones XLA for CPUs has no bfloat16 product: it stores `grads` as float32.
    ones = jnp.ones((2, grads.shape[0]), grads.dtype)
    return x_grads, table_grads, _product(ones, grads, 1, 0)[0]


_rounded_logits.defvjp(_rounded_logits_forward, _rounded_logits_backward)


def _product(x: jax.Array, y: jax.Array, x_axis: int, y_axis: int) -> jax.Array:
    """Product of two bfloat16 matrices, summed over one axis of each -> float32."""
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
