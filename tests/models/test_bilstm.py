"""The BiLSTM against torch's, on rows of different lengths."""

import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from bert_jax.models.reading import PooledHeadConfig, bilstm
from tests.tiny import make_model

FEATURES, SIZE, SEQ = 6, 5, 9
LENGTHS = np.array([9, 4, 1, 7], np.int32)


class Module(nn.Module):
    """The function, which has the parameters of the module that calls it."""

    layers: int

    @nn.compact
    def __call__(self, x, lengths, deterministic=True):
        head = PooledHeadConfig(lstm_size=SIZE, lstm_layers=self.layers, dropout_rate=0.5)
        return bilstm(make_model(), head, x, lengths, deterministic)


def make(layers, seed=0):
    """(module, random parameters, float32[rows, seq, features])."""
    rng, module = np.random.default_rng(seed), Module(layers)
    x = rng.normal(size=(len(LENGTHS), SEQ, FEATURES)).astype(np.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, LENGTHS)["params"]
    draw = lambda leaf: rng.normal(scale=0.5, size=leaf.shape).astype(np.float32)  # noqa: E731
    return module, jax.tree.map(draw, shapes), x


@functools.partial(jax.jit, static_argnums=0)
def run(module, params, x, lengths=LENGTHS, seed=None):
    rngs = None if seed is None else {"dropout": jax.random.key(seed)}
    return module.apply({"params": params}, x, lengths, seed is None, rngs=rngs)


def test_outputs_are_those_of_torch_on_packed_sequences():
    """What follows a row has no effect on it; a row of padding stays finite."""
    torch = pytest.importorskip("torch")
    layers = 2
    module, params, x = make(layers)
    theirs = torch.nn.LSTM(FEATURES, SIZE, layers, bidirectional=True, batch_first=True)
    state = {}
    for layer in range(layers):
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            gates = params[f"lstm_{layer}_{direction}"]
            # Theirs are in the order i, f, g, o, with a second bias for the input.
            stack = lambda kind, name, g=gates: np.concatenate(  # noqa: E731
                [g[f"{kind}{gate}"][name].T for gate in "ifgo"]
            )
            state |= {
                f"weight_ih_l{layer}{suffix}": stack("i", "kernel"),
                f"weight_hh_l{layer}{suffix}": stack("h", "kernel"),
                f"bias_hh_l{layer}{suffix}": stack("h", "bias"),
                f"bias_ih_l{layer}{suffix}": np.zeros(4 * SIZE, np.float32),
            }
    theirs.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    with torch.no_grad():
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.tensor(x), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
        )
        expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = np.asarray(run(module, params, np.append(x, x[:1], 0), np.append(LENGTHS, 0)))
    assert found.shape == (len(LENGTHS) + 1, SEQ, 2 * SIZE) and np.isfinite(found[-1]).all()
    found = found[:-1]
    is_token = np.arange(SEQ) < LENGTHS[:, None]
    np.testing.assert_allclose(found[is_token], expected.numpy()[is_token], atol=1e-5)


def test_dropout_is_between_layers_only():
    for layers, differ in ((1, False), (2, True)):
        module, params, x = make(layers)
        first, second = (run(module, params, x, LENGTHS, seed) for seed in (0, 1))
        assert (np.asarray(first) != np.asarray(second)).any() == differ
