"""The programs of dropout for an H100: what goes through memory."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.devices import sharding
from bert_jax.models.layers.dropout import Dropout
from bert_jax.tools.doctor.target import find_target
from tests.tools.doctor.test_nvidia import needs_compiler

SHAPE = BATCH, SEQ, HIDDEN = 32, 128, 256


class SubLayer(nn.Module):
    """Dense -> dropout -> residual sum -> layer norm, as in a Transformer block."""

    prng_impl: str

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(HIDDEN, dtype=jnp.bfloat16)(x)
        y = Dropout(0.1, self.prng_impl)(y, deterministic=False)
        return nn.LayerNorm(dtype=jnp.bfloat16)(x + y)


def arrays_in_memory(prng_impl):
    """Dtypes but floats of arrays of SHAPE's size that a forward and backward pass writes."""
    layers = nn.Sequential([SubLayer(prng_impl), SubLayer(prng_impl)])
    x = jax.ShapeDtypeStruct(SHAPE, jnp.bfloat16)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    params = jax.eval_shape(lambda x, key: layers.init({"params": key, "dropout": key}, x), x, key)

    def total(params, x, key):
        return layers.apply(params, x, rngs={"dropout": key}).astype(jnp.float32).sum()

    mesh = sharding.make_mesh(devices=find_target("h100:1").devices)
    whole = NamedSharding(mesh, PartitionSpec())
    step = jax.jit(jax.grad(total), in_shardings=whole, out_shardings=whole)
    text = step.lower(params, x, key).compile().as_text()
    written = re.findall(r"^ +(?:ROOT )?%\S+ = (.*?) (?:fusion|custom-call)\(", text, re.MULTILINE)
    assert written
    sizes = {f"{BATCH},{SEQ},{HIDDEN}", f"{BATCH * SEQ},{HIDDEN}", f"{BATCH * SEQ * HIDDEN}"}
    found = re.findall(r"(\w+)\[([\d,]+)\]", " ".join(written))
    return {dtype for dtype, size in found if size in sizes} - {"bf16", "f32"}


@needs_compiler
@pytest.mark.parametrize(
    ("prng_impl", "expected"),
    [
        ("mulxor", set()),  # neither bits nor masks
        ("threefry4x32", {"pred"}),  # masks, but not their bits
    ],
)
def test_dropout_bits_do_not_go_through_memory(prng_impl, expected):
    assert arrays_in_memory(prng_impl) == expected
