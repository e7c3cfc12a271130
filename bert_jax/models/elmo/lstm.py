"""An LSTM with an output projection, clipping and an optional skip connection.

One layer of one direction of bilm-tf's language models, which use TensorFlow's `LSTMCell`
(Sak et al. 2014 without peepholes). At each step, with the input x and the state (cell, output):

    i, j, f, o = split([x, output] @ kernel + bias)
    cell   = clip(sigmoid(f + 1) * cell + sigmoid(i) * tanh(j))
    output = clip((sigmoid(o) * tanh(cell)) @ projection)

The layer returns the outputs, plus its inputs with a skip connection; the recurrent output does not
contain the skip connection.
"""

import functools
import math
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.devices.sharding import gather_features, split_rows
from bert_jax.models.layers.dropout import Dropout

# Time steps that are unrolled in each iteration of the loop.
_UNROLL = 2


@flax.struct.dataclass
class LstmState:
    """The state between two time steps.

    Attributes:
      cell: float32[batch, cell size].
      output: float32[batch, features].
    """

    cell: jax.Array
    output: jax.Array


def zero_state(config: Any, batch_size: int) -> LstmState:
    """Returns the state before the first token of a text; `config` is an `ElmoConfig`."""
    return LstmState(
        cell=jnp.zeros((batch_size, config.cell_size), jnp.float32),
        output=jnp.zeros((batch_size, config.projection_size), jnp.float32),
    )


class Lstm(nn.Module):
    """A layer of one direction: dropout of the input -> LSTM -> skip connection.

    Attributes:
      config: an `ElmoConfig`.
      skip: whether the input (after dropout) is added to the output.
    """

    config: Any
    skip: bool = False

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        state: LstmState,
        deterministic: bool,
        *,
        starts: jax.Array | None = None,
        is_token: jax.Array | None = None,
        reverse: bool = False,
    ) -> tuple[jax.Array, LstmState]:
        """Returns float[batch, seq, features] and the state after the last time step.

        Args:
          x: float[batch, seq, features].
          state: before the first time step.
          deterministic: no dropout.
          starts: bool[batch, seq], where the state is set to zero before the step; None: nowhere.
          is_token: bool[batch, seq], the time steps that change the state; None: all.
          reverse: time runs from the last position to the first.
        """
        config, features = self.config, self.config.projection_size
        x = Dropout(config.dropout_rate, config.prng_impl, name="dropout")(x, deterministic)
        # Glorot uniform over the whole kernel is the default for TensorFlow's variables.
        glorot = nn.initializers.glorot_uniform()
        zeros = nn.initializers.zeros_init()
        gates = 4 * config.cell_size
        # Gathered once, before the loop.
        kernel = gather_features(self.param("kernel", glorot, (2 * features, gates), jnp.float32))
        bias = self.param("bias", zeros, (gates,), jnp.float32)
        projection = None
        if config.has_projection:
            shape = (config.cell_size, features)
            projection = gather_features(self.param("projection", glorot, shape, jnp.float32))

        dtype = jnp.dtype(config.dtype)
        # The inputs of all time steps go through one matrix product, outside the loop.
        inputs = _product(x.astype(dtype), kernel[:features].astype(dtype)) + bias[None, None]
        kernels = kernel[features:], projection
        # Time is the first axis, as the loop requires.
        inputs, *masks = jax.tree.map(lambda x: x.swapaxes(0, 1), (inputs, starts, is_token))
        loop: Any = _loop  # custom_vjp hides what it returns
        outputs, state = loop(config, reverse, kernels, inputs, tuple(masks), state)
        outputs = split_rows(outputs.swapaxes(0, 1))
        return (split_rows(outputs + x.astype(dtype)) if self.skip else outputs), state


# (recurrent kernel, projection or None), float32; (starts, is_token), bool[seq, batch] or None.
_Kernels = tuple[jax.Array, jax.Array | None]
_Masks = tuple[jax.Array | None, jax.Array | None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _loop(
    config: Any,
    reverse: bool,
    kernels: _Kernels,
    inputs: jax.Array,
    masks: _Masks,
    state: LstmState,
) -> tuple[jax.Array, LstmState]:
    """Returns the outputs, float[seq, batch, features], and the last state.

    The gradient of the kernels is one product over all time steps, after the loop. jax's own rule
    is a sum inside the loop, which is read, written and sent between devices at each step.

    Args:
      config: an `ElmoConfig`.
      reverse: see `Lstm`.
      kernels: the kernel that multiplies the recurrent output, and the projection.
      inputs: float32[seq, batch, gates], already multiplied by their kernel.
      masks: `starts` and `is_token` of `Lstm`, time first.
      state: before the first time step.
    """
    return _scan(config, reverse, kernels, inputs, None, masks, state)[0]


def _loop_forward(config, reverse, kernels, inputs, masks, state):
    def run(inputs, projected, state):
        return _scan(config, reverse, kernels, inputs, projected, masks, state)

    # An array that is added to a product has the same gradient as the product.
    has_projection, shape = kernels[1] is not None, (*inputs.shape[:2], config.projection_size)
    projected = jnp.zeros(shape, jnp.float32) if has_projection else None
    result, backward, operands = jax.vjp(run, inputs, projected, state, has_aux=True)
    return result, (backward, operands)


def _loop_backward(config, reverse, kept, gradients):
    backward, operands = kept
    of_inputs, of_projected, of_state = backward(gradients)

    def of_kernel(operand, of_product):
        if of_product is None:
            return None
        product = of_product.astype(operand.dtype)
        return jnp.einsum("tbi,tbo->io", operand, product, preferred_element_type=jnp.float32)

    of_kernels = tuple(map(of_kernel, operands, (of_inputs, of_projected)))
    return of_kernels, of_inputs, (None, None), of_state


_loop.defvjp(_loop_forward, _loop_backward)


def _scan(
    config: Any,
    reverse: bool,
    kernels: _Kernels,
    inputs: jax.Array,
    projected: jax.Array | None,
    masks: _Masks,
    state: LstmState,
) -> tuple[tuple[jax.Array, LstmState], tuple[jax.Array, jax.Array]]:
    """Returns the results of `_loop`, and the operands of both kernels, float[seq, batch, in].

    `projected`, float32[seq, batch, features] or None, is added to what the projection gives.
    """
    dtype = jnp.dtype(config.dtype)
    kernel, projection = jax.tree.map(lambda kernel: kernel.astype(dtype), kernels)

    def step(state: LstmState, now: Any) -> tuple[LstmState, Any]:
        inputs, added, start, token = now
        if start is not None:
            state = jax.tree.map(lambda old: jnp.where(start[:, None], 0.0, old), state)
        before = state.output.astype(dtype)
        gates = inputs + _product(before, kernel)
        cell, hidden = _cell(config, gates, state.cell)
        output, hidden = hidden, hidden.astype(dtype)
        if projection is not None:
            output = _product(hidden, projection)
            output = _clip(output if added is None else output + added, config.projection_clip)
        new = LstmState(cell, output)
        if token is not None:
            new = jax.tree.map(lambda new, old: jnp.where(token[:, None], new, old), new, state)
        return new, (new.output.astype(dtype), (before, hidden))

    unroll = math.gcd(_UNROLL, inputs.shape[0])
    times = (inputs, projected, *masks)
    state, (outputs, operands) = jax.lax.scan(step, state, times, reverse=reverse, unroll=unroll)
    return (outputs, state), operands


def _cell(config: Any, gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the cell, and the output before its projection, from the gates' products."""
    i, j, f, o = jnp.split(gates, 4, axis=-1)
    # The forget gate's bias of 1 is a constant, not a parameter.
    cell = nn.sigmoid(f + 1) * cell + nn.sigmoid(i) * jnp.tanh(j)
    cell = _clip(cell, config.cell_clip)
    return cell, nn.sigmoid(o) * jnp.tanh(cell)


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """float[..., in] @ float[in, out] -> float32[..., out]."""
    return jnp.einsum("...i,io->...o", x, kernel, preferred_element_type=jnp.float32)


def _clip(x: jax.Array, limit: float) -> jax.Array:
    return jnp.clip(x, -limit, limit) if limit else x


def flops_per_token(config: Any) -> float:
    """FLOPs per token of the matrix products of one layer in one direction."""
    features, cell = config.projection_size, config.cell_size
    return 2.0 * (8 * features * cell + config.has_projection * cell * features)
