"""Programs for NVIDIA GPUs that are not here, by XLA's compiler for them."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.models.layers.dropout import Dropout
from bert_jax.tools.doctor.compiled import compile_program
from bert_jax.tools.doctor.cost import describe
from bert_jax.tools.doctor.gpus import GPUS
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.tools.doctor.target import find_target, has_compiler
from bert_jax.training.run import make_checked_mesh
from tests.tools.doctor.conftest import small_config

pytestmark = pytest.mark.skipif(not has_compiler("nvidia"), reason="needs the extra nvidia")


@pytest.mark.parametrize("kind", GPUS)
def test_a_training_step_is_compiled_for_several_machines(kind):
    """Gradients are summed over data, parameters are split over fsdp and tensor."""
    found = find_target(f"{kind}:2x4")
    assert (len(found.devices), found.room) == (8, GPUS[kind].device_memory_size)
    config = small_config("tiny", dtype="bfloat16")
    compiled = compile_program(programs(plan(config, make_checked_mesh(config, found.devices)))[0])
    sizes = compiled.program.sizes
    assert compiled.fits(found.room) and not compiled.fits(sizes["parameters"])
    assert compiled.peak >= sum(sizes.values())
    assert compiled.moved.off_chip > sizes["parameters"] + sizes["optimizer"]
    assert {"all-reduce", "all-gather"} <= compiled.moved.collectives.keys()
    text = "\n".join(describe(compiled, found).lines)
    assert "\nFLOPs        of the model " in text and "accessed" not in text
    assert "\nbound        at least " in text


def test_cudnn_is_compiled_without_it():
    found = find_target("h100:8")
    changes = {"model__attention": "cudnn", "model__attention_dropout_rate": 0.0}
    config = small_config("tiny", dtype="bfloat16", **changes)
    mesh = make_checked_mesh(config, found.devices)
    with found.lowering():
        step = programs(plan(config, mesh))[0]
        text = step.function.lower(*step.arguments).compile().as_text()
    assert "__cudnn$fmhaSoftmaxBackward" in text and "ScaleBias" not in text
    with pytest.raises(UserError, match="cuDNN"):  # without the context, jax asks the machine
        programs(plan(config, mesh))


SHAPE = BATCH, SEQ, HIDDEN = 32, 128, 256


class SubLayer(nn.Module):
    """Dense -> dropout -> residual sum -> layer norm, as in a Transformer block."""

    prng_impl: str

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(HIDDEN, dtype=jnp.bfloat16)(x)
        y = Dropout(0.1, self.prng_impl)(y, deterministic=False)
        return nn.LayerNorm(dtype=jnp.bfloat16)(x + y)


@pytest.mark.parametrize(
    ("prng_impl", "expected"),
    [
        ("mulxor", set()),  # neither bits nor masks
        ("threefry4x32", {"pred"}),  # masks, but not their bits
    ],
)
def test_dropout_bits_do_not_go_through_memory(prng_impl, expected):
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
    assert {dtype for dtype, size in found if size in sizes} - {"bf16", "f32"} == expected
