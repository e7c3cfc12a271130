"""An LSTM with a projection of its output, clips and an optional skip connection.

One layer of one direction of bilm-tf's language models, which use TensorFlow's `LSTMCell`
(Sak et al. 2014 without peepholes). At each time, with the input x and the state (cell, output):

    i, j, f, o = split([x, output] @ kernel + bias)
    cell   = clip(sigmoid(f + 1) * cell + sigmoid(i) * tanh(j))
    output = clip((sigmoid(o) * tanh(cell)) @ projection)

The layer returns the outputs, plus its inputs with a skip connection; the recurrent output does not
contain the skip connection.
"""

import math
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.layers.dropout import Dropout

# Time steps that are compiled one after the other inside the loop.
_UNROLL = 2


@flax.struct.dataclass
class LstmState:
    """The state between two times.

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
        """Returns float[batch, seq, features] and the state after the last time.

        Args:
          x: float[batch, seq, features].
          state: before the first time.
          deterministic: no dropout.
          starts: bool[batch, seq], where the state is set to zero before the time; None: nowhere.
          is_token: bool[batch, seq], the times that change the state; None: all.
          reverse: time runs from the last position to the first.
        """
        config, features = self.config, self.config.projection_size
        x = Dropout(config.dropout_rate, config.prng_impl, name="dropout")(x, deterministic)
        # Glorot's range, of the whole kernel, is the default of TensorFlow's variables.
        glorot = nn.initializers.glorot_uniform()
        zeros = nn.initializers.zeros_init()
        gates = 4 * config.cell_size
        kernel = self.param("kernel", glorot, (2 * features, gates), jnp.float32)
        bias = self.param("bias", zeros, (gates,), jnp.float32)
        projection = None
        if config.has_projection:
            shape = (config.cell_size, features)
            projection = self.param("projection", glorot, shape, jnp.float32)

        dtype = jnp.dtype(config.dtype)
        kernel = kernel.astype(dtype)
        projection = None if projection is None else projection.astype(dtype)
        # The products with the inputs of all times are one matrix product, outside of the loop.
        inputs = _product(x.astype(dtype), kernel[:features]) + bias[None, None]

        def step(state: LstmState, now: Any) -> tuple[LstmState, jax.Array]:
            inputs, start, token = now
            if start is not None:
                state = jax.tree.map(lambda old: jnp.where(start[:, None], 0.0, old), state)
            new = _next_state(config, state, inputs, kernel[features:], projection)
            if token is not None:
                new = jax.tree.map(lambda new, old: jnp.where(token[:, None], new, old), new, state)
            return new, new.output.astype(dtype)

        times = jax.tree.map(lambda array: array.swapaxes(0, 1), (inputs, starts, is_token))
        unroll = math.gcd(_UNROLL, x.shape[1])
        state, outputs = jax.lax.scan(step, state, times, reverse=reverse, unroll=unroll)
        outputs = outputs.swapaxes(0, 1)
        return (outputs + x.astype(dtype) if self.skip else outputs), state


def _next_state(
    config: Any,
    state: LstmState,
    inputs: jax.Array,
    kernel: jax.Array,
    projection: jax.Array | None,
) -> LstmState:
    """Returns the state after a time, whose inputs are multiplied already."""
    gates = inputs + _product(state.output.astype(kernel.dtype), kernel)
    i, j, f, o = jnp.split(gates, 4, axis=-1)
    # The bias of 1 of the forget gate is a constant, not part of the parameters.
    cell = nn.sigmoid(f + 1) * state.cell + nn.sigmoid(i) * jnp.tanh(j)
    cell = _clip(cell, config.cell_clip)
    output = nn.sigmoid(o) * jnp.tanh(cell)
    if projection is not None:
        output = _product(output.astype(projection.dtype), projection)
        output = _clip(output, config.projection_clip)
    return LstmState(cell, output)


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """float[..., in] @ float[in, out] -> float32[..., out]."""
    return jnp.einsum("...i,io->...o", x, kernel, preferred_element_type=jnp.float32)


def _clip(x: jax.Array, limit: float) -> jax.Array:
    """Returns x between -limit and limit; limit 0 stands for none."""
    return jnp.clip(x, -limit, limit) if limit else x


def flops_per_token(config: Any) -> float:
    """FLOPs of the matrix products of one layer of one direction for a token."""
    features, cell = config.projection_size, config.cell_size
    return 2.0 * (8 * features * cell + config.has_projection * cell * features)
