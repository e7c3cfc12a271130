"""An NVIDIA GPU computes what the CPU computes: JAX_PLATFORMS=cuda,cpu python -m pytest -m gpu."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.models.bert import BertConfig
from bert_jax.models.layers.attention import attention
from bert_jax.models.layers.masks import make_mask
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tools.benchmark import step as benchmark
from bert_jax.training.state import init_state, make_key
from bert_jax.training.step import train_step

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu():
    """The first GPU; float32 products without rounding to TF32."""
    if jax.default_backend() != "gpu":
        pytest.fail("No GPU: set JAX_PLATFORMS=cuda,cpu on a machine that has one.")
    with jax.default_matmul_precision("highest"):
        yield jax.devices()[0]


def test_cudnn_attends_within_examples_as_einsum_in_float32():
    """Two examples and padding in a row of 512; the lowest mask value is -inf in bfloat16."""
    rng = np.random.default_rng(0)
    heads = [jnp.asarray(rng.standard_normal((2, 512, 4, 64)), jnp.bfloat16) for _ in range(3)]
    ids = jnp.asarray(np.repeat([[1, 2, 0]], [300, 150, 62], axis=1).repeat(2, 0))
    positions = jnp.broadcast_to(jnp.arange(512), (2, 512))
    mask = make_mask(ids, positions, "bidirectional", 0, float(np.finfo(np.float32).min))
    weights = jnp.asarray(rng.standard_normal(heads[0].shape), jnp.float32)
    weights *= (ids > 0)[:, :, None, None]

    def run(implementation, *heads):
        def total(query, key, value):
            found, _ = attention(query, key, value, mask, implementation=implementation)
            found = found.astype(jnp.float32)
            return (found * weights).sum(), found

        return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*heads)

    grads, found = run("cudnn", *heads)
    exact_grads, exact = run("einsum", *(x.astype(jnp.float32) for x in heads))
    is_token = np.asarray(ids > 0)
    for one, other in zip((found, *grads), (exact, *exact_grads), strict=True):
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        assert np.isfinite(one).all()
        error = np.linalg.norm(one[is_token] - other[is_token]) / np.linalg.norm(other[is_token])
        assert error < 1e-2  # bfloat16 has 8 bits


def run_steps(device, count, dtype="float32", **fields):
    """Returns the losses of training steps of BERT-Tiny on a device, and its parameters."""
    config = BertConfig.of_size("tiny", vocab_size=benchmark.VOCAB_SIZE, dtype=dtype, **fields)
    batch = benchmark.make_batch(8, 128)
    task = Pretraining(config, rule=benchmark.masking_rule(batch))
    tx, _ = make_optimizer(OptimizerConfig(), num_steps=100, warmup_steps=2)
    mesh = sharding.make_mesh(devices=[device])
    with jax.default_device(device):
        keys = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}
        state = init_state(task, tx, mesh, make_key(0, "init"))
        rows = sharding.shard_batch(mesh, benchmark.unmasked(batch), 8, 0)
        update = jax.jit(lambda *args: train_step(*args, task=task, tx=tx))
        losses = []
        for _ in range(count):
            state, metrics = update(state, rows, keys)
            losses.append(metrics.sums["masked_lm_loss"].numerator)
    return np.float64(jax.device_get(losses)), jax.device_get(state.params)


def test_training_steps_have_the_losses_of_the_cpu(gpu):
    """Masks and dropout have the same random bits on both."""
    losses, params = run_steps(gpu, 5)
    expected, expected_params = run_steps(jax.devices("cpu")[0], 5)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), params, expected_params
    )


def test_cudnn_trains_as_einsum(gpu):
    fields = {"dtype": "bfloat16", "attention_dropout_rate": 0.0}
    one, other = (run_steps(gpu, 5, attention=name, **fields)[0] for name in ("einsum", "cudnn"))
    np.testing.assert_allclose(one, other, rtol=2e-3)
