"""Muon against singular value decompositions, optax's, torch's, and coefficients found anew.

Which parameters it is for, and whole steps: tests/race/test_train.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from scipy.optimize import linprog

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.optim.make import make_optimizer
from bert_jax.optim.muon import STEPS, orthogonalize, scale_by_muon
from tests.tiny import make_mesh

LAYER = "bert/encoder/layer_0"
# A square, a wide and a tall matrix, and one more of the first shape.
MATRICES = {
    f"{LAYER}/attention/query/kernel": (16, 16),
    f"{LAYER}/attention/output/kernel": (16, 16),
    f"{LAYER}/intermediate/kernel": (16, 64),
    f"{LAYER}/output/kernel": (64, 16),
}
OTHERS = {
    f"{LAYER}/output/bias": (16,),
    "bert/embeddings/word_embeddings/embedding": (40, 16),
    "classifier/kernel": (16, 3),
}


def make_config(name="muon", **changes):
    values = {"learning_rate": 0.02, "weight_decay": 0.0, "clip_norm": 0.0, "no_decay": ()}
    return OptimizerConfig(name=name, schedule="constant", encoder="bert", **values | changes)


@pytest.fixture
def params():
    rng = np.random.default_rng(4)
    shapes = MATRICES | OTHERS
    return unflatten({n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()})


def nearest_orthogonal(x):
    left, _, right = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    return left @ right


def with_singular_values(values, shape):
    rng = np.random.default_rng(6)
    left, right = (np.linalg.qr(rng.normal(size=(n, len(values))))[0] for n in shape)
    return ((left * values) @ right.T).astype(np.float32)


@pytest.mark.parametrize("interval", [0, 1, 2, 3])
def test_each_step_is_the_best_quintic_on_the_interval_that_the_one_before_leaves(interval):
    low, high = 0.003, 1.0
    for a, b, c in STEPS[:interval]:
        low = a * low + b * low**3 + c * low**5
        high = 2 - low
    # Smallest e with |a x + b x^3 + c x^5 - 1| <= e at all points: a linear program.
    x = np.linspace(low, high, 4001)
    powers, ones = np.stack([x, x**3, x**5], 1), np.ones((len(x), 1))
    found = linprog(
        [0, 0, 0, 1],
        A_ub=np.block([[powers, -ones], [-powers, -ones]]),
        b_ub=np.concatenate([ones, -ones]),
        bounds=(None, None),
    )
    np.testing.assert_allclose(STEPS[interval], found.x[:3], rtol=1e-3)
    np.testing.assert_allclose(np.abs(powers @ STEPS[interval] - 1).max(), found.x[3], rtol=1e-3)


@pytest.mark.parametrize("shape", [(64, 64), (64, 256)], ids=str)
@pytest.mark.parametrize("spectrum", ["slow", "random"])
def test_directions_are_nearer_to_orthogonal_matrices_than_optaxs(shape, spectrum):
    values = {
        "slow": np.arange(1, 65) ** -0.5,
        "random": np.linalg.svd(np.random.default_rng(7).normal(size=shape), compute_uv=False),
    }[spectrum]
    x = with_singular_values(values, shape)
    exact = nearest_orthogonal(x)
    optaxs = optax.contrib.scale_by_muon(
        beta=0.0,
        nesterov=False,
        weight_dimension_numbers={"x": optax.contrib.MuonDimensionNumbers()},
    )
    theirs, _ = optaxs.update({"x": x}, optaxs.init({"x": x}))
    error, error_of_optax = (
        np.linalg.norm(np.asarray(found) - exact) / np.linalg.norm(exact)
        for found in (jax.jit(orthogonalize)(x), theirs["x"])
    )
    assert error < 0.2 and error < error_of_optax


@pytest.mark.parametrize("columns", [32, 128])
def test_small_singular_values_grow_and_none_is_negative(columns):
    """Down to the rounding errors of squares, 1e-4 of the largest."""
    values = np.geomspace(1e-4, 1, 32)
    x = with_singular_values(values, (32, columns))
    left, _, right = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    in_their_basis = left.T @ np.asarray(orthogonalize(jnp.asarray(x))) @ right.T
    bound = np.sum(values**4) ** 0.25
    expected = values[::-1] / bound
    for a, b, c in STEPS:
        expected = a * expected + b * expected**3 + c * expected**5
    np.testing.assert_allclose(in_their_basis, np.diag(expected), atol=5e-3)


def test_tiny_and_zero_matrices_have_finite_directions():
    x = np.random.default_rng(8).normal(size=(2, 8, 24)).astype(np.float32)
    scales = np.array([1e-30, 1e15], np.float32)[:, None, None]
    np.testing.assert_allclose(orthogonalize(x * scales), orthogonalize(x), atol=1e-5)
    assert not np.asarray(orthogonalize(jnp.zeros((8, 24)))).any()


def test_steps_of_muon_are_torchs_up_to_their_iterations(params):
    """Which differ: torch's has Jordan's five, in bfloat16."""
    torch = pytest.importorskip("torch")
    name = f"{LAYER}/output/kernel"
    tx, _ = make_optimizer(make_config(weight_decay=0.1), 25, 0)
    theirs = torch.nn.Parameter(torch.tensor(flatten(params)[name]))
    optimizer = torch.optim.Muon(
        [theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    state, ours, rng = tx.init(params), params, np.random.default_rng(9)
    for _ in range(3):
        before, theirs_before = flatten(ours)[name], theirs.detach().numpy().copy()
        grads = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)
        updates, state = tx.update(grads, state, ours)
        ours = optax.apply_updates(ours, updates)
        theirs.grad = torch.tensor(flatten(grads)[name])
        optimizer.step()
        moved, expected = flatten(ours)[name] - before, theirs.detach().numpy() - theirs_before
        cosine = (moved * expected).sum() / np.linalg.norm(moved) / np.linalg.norm(expected)
        assert cosine > 0.97
        np.testing.assert_allclose(np.linalg.norm(moved), np.linalg.norm(expected), rtol=0.2)


def test_directions_are_the_same_on_a_mesh(params):
    """Whose axes split rows, columns or both of the matrices of a stack."""
    mesh = make_mesh(2, 2, 2)
    grads = {name: array for name, array in flatten(params).items() if name in MATRICES}
    specs = [("fsdp", "tensor"), ("tensor", "fsdp"), ("fsdp", "tensor"), ("tensor", "fsdp")]
    split = {
        name: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
        for (name, array), spec in zip(grads.items(), specs, strict=True)
    }
    tx = scale_by_muon()
    expected, _ = jax.jit(tx.update)(grads, tx.init(grads))
    found, _ = jax.jit(tx.update)(split, tx.init(split))
    for name, direction in expected.items():
        np.testing.assert_allclose(found[name], direction, atol=1e-4, err_msg=name)
