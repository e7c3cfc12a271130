"""Programs for NVIDIA GPUs that are not here, by XLA's compiler for them."""

import importlib.util

import pytest

from bert_jax.devices.chips import find_chip
from bert_jax.files.errors import UserError
from bert_jax.tools.doctor import target
from bert_jax.tools.doctor.compiled import compile_program
from bert_jax.tools.doctor.describe import describe
from bert_jax.tools.doctor.gpus import GPUS
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.tools.doctor.target import find_target
from bert_jax.training.run import make_checked_mesh
from tests.tools.doctor.conftest import small_config


def has_compiler() -> bool:
    found = importlib.util.find_spec("jax_plugins")
    return bool(found and any(importlib.util.find_spec(n) for n in target._CUDA_PLUGINS))


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs the extra nvidia")


@pytest.mark.parametrize("kind", GPUS)
def test_each_gpu_has_its_peak_rates(kind):
    gpu = GPUS[kind]
    chip = find_chip(gpu.name)
    assert chip.bandwidth == pytest.approx(gpu.memory_bandwidth * 1e6, rel=0.05)
    assert chip.flops and chip.interconnect


@needs_compiler
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


@needs_compiler
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
