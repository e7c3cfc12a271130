"""The randomly initialized BiLSTM below a head (Devlin et al. 2019, sections 5.1 and 5.3)."""

from typing import Any

import flax.linen as nn
import jax

from bert_jax.models.layers.dropout import Dropout


def bilstm(
    x: jax.Array,
    lengths: jax.Array,
    deterministic: bool,
    *,
    size: int,
    layers: int,
    dropout_rate: float,
    prng_impl: str,
) -> jax.Array:
    """Returns float32[batch, seq, 2 * size], the states of both directions; in a compact method.

    The parameters are those of the module that calls: "lstm_0_forward", "lstm_0_backward", ... As
    in `torch.nn.LSTM`, a layer reads both directions of the layer below, with dropout between the
    two.

    Args:
      x: float32[batch, seq, features].
      lengths: int32[batch]; the backward direction starts at the last of these positions. What
        comes after them has no effect on them, and is not meaningful.
      deterministic: no dropout.
      size: cells of each direction.
      layers: number of layers.
      dropout_rate: between layers.
      prng_impl: generator of the random bits of dropout.
    """
    for layer in range(layers):
        if layer:
            x = Dropout(dropout_rate, prng_impl)(x, deterministic)
        forward, backward = (
            nn.RNN(nn.OptimizedLSTMCell(size, name=f"lstm_{layer}_{name}"))
            for name in ("forward", "backward")
        )
        both: Any = nn.Bidirectional(forward, backward)
        x = both(x, seq_lengths=lengths)
    return x
