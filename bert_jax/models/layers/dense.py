"""Dense layers, the feed-forward network, tables of embeddings, and their initial values."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.devices.sharding import gather_features, split_rows
from bert_jax.models.model import EncoderConfig, activation_dtype

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
        dtype=activation_dtype(config),
        kernel_init=initializer(config),
        dot_general=lambda x, kernel, *_, **__: product(x, kernel),
        name=name,
    )


class Table(nn.Embed):
    """A table of embeddings, float32[rows, features]."""

    def __call__(self, ids: jax.Array) -> jax.Array:
        """int32[batch, ...] -> float32[batch, ..., features]."""
        return split_rows(jnp.take(self.whole(), ids, axis=0))

    def whole(self) -> jax.Array:
        """float32[rows, features], the table; see `gather_features`."""
        return gather_features(self.embedding)


def embedding(config: EncoderConfig, rows: int, name: str | None = None) -> Table:
    """Returns a table float32[rows, config.embedding_size] with the initial values of `dense`."""
    return Table(rows, config.embedding_size, embedding_init=initializer(config), name=name)


def activate(config: EncoderConfig, x: jax.Array) -> jax.Array:
    """GELU (Hendrycks & Gimpel 2016) or another function, float[...] -> float[...].

    activation="gelu" is x * Phi(x); "gelu_tanh" approximates Phi by tanh, as in the released code
    of BERT since February 2019; "relu_squared" is max(x, 0)^2 (So et al. 2021, section 4.2). The
    backward pass recomputes all but the input.
    """
    if config.activation == "relu_squared":
        return jax.checkpoint(lambda x: jnp.square(nn.relu(x)))(x)
    gelu = functools.partial(nn.gelu, approximate=config.activation == "gelu_tanh")
    return jax.checkpoint(gelu)(x)


def feed_forward(config: TransformerConfig, x: jax.Array) -> jax.Array:
    """Two dense layers with an activation between them, float[batch, seq, hidden] -> the same.

    `plain`: output(activate(intermediate(x))). `gated` (Shazeer 2020, equation 6):
    output(activate(gate(x)) * intermediate(x)). Call it in a compact method: it creates the
    submodules `intermediate`, `output` and, if gated, `gate` there.
    """
    if config.feed_forward == "gated":
        gate = activate(config, dense(config, config.intermediate_size, "gate")(x))
        inner = gate * dense(config, config.intermediate_size, "intermediate")(x)
    else:
        inner = activate(config, dense(config, config.intermediate_size, "intermediate")(x))
    return dense(config, config.hidden_size, "output")(inner)


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

    The same holds for the products of its gradient. On CPUs with instructions for bfloat16 it takes
    about half the time of a float32 product, where activations in bfloat16 take longer.

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
      rounds: whether operands are rounded as in `rounded_matmul`, and in the gradient of the bias;
        otherwise the table gets the dtype of x.

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
    # The small matrix is transposed, and the result; XLA would fold the latter into the product.
    table_grads = jax.lax.optimization_barrier(_product(_transpose(rows), grads, 1, 0)).T
    # For a single row of ones XLA for CPUs has no bfloat16 product: it stores `grads` as float32.
    ones = jnp.ones((2, grads.shape[0]), grads.dtype)
    return x_grads, table_grads, _product(ones, grads, 1, 0)[0]


_rounded_logits.defvjp(_rounded_logits_forward, _rounded_logits_backward)


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
