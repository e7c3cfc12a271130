"""Adafactor against torch's."""

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bert_jax.config.groups import OptimizerConfig  # noqa: E402
from bert_jax.optim.make import make_optimizer  # noqa: E402

CONFIG = OptimizerConfig(
    name="adafactor",
    learning_rate=1e-2,
    schedule="constant",
    weight_decay=0.1,
    clip_norm=0.0,
    no_decay=(),
)
SHAPES = {"kernel": (160, 130), "embedding": (300, 128), "bias": (7,)}


def test_twenty_updates_are_those_of_torch():
    """torch takes the smaller of the rate and 1 / sqrt(t): here always the rate."""
    rng = np.random.default_rng(0)
    params = {n: (0.05 * rng.normal(size=s)).astype(np.float32) for n, s in SHAPES.items()}
    theirs = {n: torch.nn.Parameter(torch.tensor(p)) for n, p in params.items()}
    tx, _ = make_optimizer(CONFIG, 20, 0)
    their_tx = torch.optim.Adafactor(
        theirs.values(), lr=1e-2, beta2_decay=-0.8, eps=(1e-30, 1e-3), weight_decay=0.1
    )
    state = tx.init(params)
    for step in range(20):
        scale = 10.0 if step == 7 else 0.1  # one update is clipped
        grads = {n: (scale * rng.normal(size=s)).astype(np.float32) for n, s in SHAPES.items()}
        updates, state = tx.update(grads, state, params)
        params = jax.tree.map(np.add, params, jax.device_get(updates))
        for name, parameter in theirs.items():
            parameter.grad = torch.tensor(grads[name])
        their_tx.step()
    for name, parameter in theirs.items():
        np.testing.assert_allclose(
            params[name], parameter.detach().numpy(), rtol=2e-5, atol=2e-6, err_msg=name
        )
