"""The kernel for TPUs, interpreted step by step: equal to the formula, on a mesh too."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.devices import sharding
from bert_jax.models.layers import splash
from bert_jax.models.layers.attention import attention
from bert_jax.models.layers.masks import AttentionMask, make_mask

BATCH, SEQ, HEADS = 4, 256, 2
MASKS = [("bidirectional", 0), ("causal", 0), ("window", 40)]


@pytest.fixture(scope="module")
def rows():
    """Rows of three examples and padding: ids and positions, int32[batch, seq]."""
    rng = np.random.default_rng(0)
    ids, places = np.zeros((2, BATCH, SEQ), np.int32)
    for row in range(BATCH):
        ends = np.sort(rng.choice(np.arange(10, SEQ), 3, replace=False))
        for number, (first, end) in enumerate(zip([0, *ends[:2]], ends, strict=True), 1):
            ids[row, first:end] = number
            places[row, first:end] = np.arange(end - first)
    return ids, places


@pytest.fixture(scope="module")
def heads():
    rng = np.random.default_rng(1)
    shape = (BATCH, SEQ, HEADS, 64)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(3)]


def run(attend, heads, ids):
    """Returns the gradients of a function of the results at all tokens, and these."""

    def total(*heads):
        found = jnp.where((ids > 0)[..., None, None], attend(*heads), 0)
        return jnp.sin(found).sum(), found

    return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*heads)


@pytest.mark.parametrize("mask", MASKS, ids=[name for name, _ in MASKS])
def test_the_kernel_is_the_formula_with_its_gradients(mask, rows, heads):
    seen = make_mask(*map(jnp.asarray, rows), *mask, -10_000.0)
    found = run(lambda *h: splash.splash_attention(*h, seen, interpret=True), heads, rows[0])
    expected = run(lambda *h: attention(*h, seen)[0], heads, rows[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), found, expected)


def test_the_kernel_runs_on_each_device_of_a_mesh(rows, heads):
    """Rows over data and fsdp, heads over tensor."""
    seen = make_mask(*map(jnp.asarray, rows), *MASKS[0], -10_000.0)

    def attend(*heads):
        return splash.splash_attention(*heads, seen, interpret=True)

    expected = run(attend, heads, rows[0])
    mesh = sharding.make_mesh(2, 2, 2)
    placed = jax.device_put(heads, sharding.batch_sharding(mesh))
    found = run(sharding.on_mesh(mesh, attend), placed, rows[0])
    assert len(found[1].sharding.device_set) == 8
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), found, expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"shape": (4, 200, 4, 64)}, False),
        ({"shape": (3, 256, 4, 64)}, False),
        ({"shape": (4, 256, 3, 64)}, False),
        ({"ids": None}, False),
        ({"kind": "NVIDIA H100"}, False),
    ],
)
def test_the_formula_is_used_where_the_kernel_cannot_be(changes, expected, monkeypatch):
    given = {"shape": (4, 256, 4, 64), "ids": jnp.ones((4, 256)), "kind": "TPU v5 lite"} | changes
    device = types.SimpleNamespace(device_kind=given["kind"])
    sizes = {"data": 2, "fsdp": 1, "tensor": 2}
    mesh = types.SimpleNamespace(shape=sizes, empty=False, abstract_device=device)
    monkeypatch.setattr(jax.sharding, "get_abstract_mesh", lambda: mesh)
    assert splash.has_splash(given["shape"], AttentionMask(jnp.zeros(1), given["ids"])) is expected


def test_without_a_tpu_a_model_with_splash_is_one_with_einsum(rows, heads):
    seen = make_mask(*map(jnp.asarray, rows), *MASKS[0], -10_000.0)
    found, expected = (
        attention(*heads, seen, implementation=name)[0] for name in ("splash", "einsum")
    )
    np.testing.assert_array_equal(found, expected)
