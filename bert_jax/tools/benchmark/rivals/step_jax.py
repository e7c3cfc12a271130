"""This program's training step, and the matrix products it cannot be faster than."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.devices.allocator import keep_freed_memory
from bert_jax.devices.chips import peak_flops
from bert_jax.models.bert import BertConfig
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.masking import MaskingRule
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tools.benchmark.workload import (
    DROPOUT,
    MASKING,
    PREDICTIONS,
    SEQUENCE_LENGTH,
    SIZES,
    UPDATE,
    VOCAB_SIZE,
    make_batch,
    time_steps,
)
from bert_jax.training.run import flops_per_token
from bert_jax.training.state import init_state, make_key
from bert_jax.training.step import compute_gradient, train_step

Measured = tuple[dict[str, Any], Callable[[], list[float]]]


def build_step(
    model: str, dtype: str, batch_size: int, prng_impl: str, without: Sequence[str] = ()
) -> Measured:
    """The whole update: masks drawn on the device, forward, backward, clipping, Adam, metrics.

    `without` are those of `workload.PARTS` that are left out.
    """
    keep_freed_memory()
    mesh = sharding.make_mesh()
    # 20 / 128, so that each row really has 20 predictions.
    rule = MaskingRule(
        masked_lm_prob=PREDICTIONS / SEQUENCE_LENGTH,
        max_predictions=PREDICTIONS,
        masking="subword",
        vocab_size=VOCAB_SIZE,
        mask_id=103,
        never_masked=(101, 102),
    )
    config = model_config(model, dtype, prng_impl)
    if DROPOUT in without:
        config = dataclasses.replace(config, dropout_rate=0.0, attention_dropout_rate=0.0)
    given_masks = None if MASKING in without else rule
    task = Pretraining(config, rule=given_masks)
    tx, _ = make_optimizer(
        OptimizerConfig(
            name="bert_adam",
            learning_rate=1e-4,
            schedule="bert_linear",
            weight_decay=0.01,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-6,
            clip_norm=1.0,
            no_decay=("layer_norm", "bias"),
            encoder=config.name,
        ),
        num_steps=1_000_000,
        warmup_steps=10_000,
    )
    state = init_state(task, tx, mesh, make_key(0, "init"))
    update = jax.jit(functools.partial(train_step, task=task, tx=tx), donate_argnums=0)
    gradient = jax.jit(lambda *arguments: compute_gradient(*arguments, task=task)[0])
    keys = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}
    batch = make_batch(batch_size)
    if given_masks is not None:
        batch = {k: v for k, v in batch.items() if not k.startswith("masked_lm")}
    batch = sharding.shard_batch(mesh, batch, batch_size, 0)

    def step() -> None:
        nonlocal state
        if UPDATE in without:
            jax.block_until_ready(gradient(state, batch, keys))
        else:
            state, metrics = update(state, batch, keys)
            jax.block_until_ready((state, metrics))

    step()
    flops = flops_per_token(task, SEQUENCE_LENGTH)
    properties = {"flops": flops * batch_size * SEQUENCE_LENGTH, "peak_flops": peak_flops()}
    return properties, lambda: time_steps(step)


def build_ceiling(model: str, dtype: str, batch_size: int) -> Measured:
    """Measures the fastest, in FLOP/s, of the matrix products in the model."""
    keep_freed_memory()
    hidden = SIZES[model].hidden_size
    tokens, masked = batch_size * SEQUENCE_LENGTH, batch_size * PREDICTIONS
    shapes = [
        (tokens, hidden, hidden),
        (tokens, hidden, 4 * hidden),
        (tokens, 4 * hidden, hidden),
        (masked, hidden, VOCAB_SIZE),
    ]
    rounds_products = dtype == "bfloat16_products"
    of_operands, of_result = ("bfloat16", jnp.float32) if rounds_products else (dtype, None)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=of_result))

    def measure() -> list[float]:
        speeds = []
        for n, k, m in shapes:
            a, b = jnp.ones((n, k), of_operands), jnp.ones((k, m), of_operands)
            seconds = time_steps(lambda a=a, b=b: jax.block_until_ready(product(a, b)), 0.05)
            speeds.append(2 * n * k * m / min(seconds))
        return [max(speeds)]

    device = jax.devices()[0]
    properties = {"device": device.device_kind, "platform": device.platform}
    return properties | {"devices": jax.device_count()}, measure


def model_config(model: str, dtype: str, prng_impl: str) -> BertConfig:
    """As in the paper, except for the size."""
    size = SIZES[model]
    return BertConfig(
        vocab_size=VOCAB_SIZE,
        pad_vocab_to_multiple_of=1,
        hidden_size=size.hidden_size,
        num_layers=size.num_layers,
        num_heads=size.num_heads,
        intermediate_size=4 * size.hidden_size,
        max_position_embeddings=512,
        type_vocab_size=2,
        dropout_rate=0.1,
        attention_dropout_rate=0.1,
        initializer_range=0.02,
        layer_norm_epsilon=1e-12,
        activation="gelu_tanh",
        remat=False,
        dtype=dtype,
        prng_impl=prng_impl,
    )
