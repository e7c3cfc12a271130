"""An NVIDIA GPU computes what the CPU computes: JAX_PLATFORMS=cuda,cpu python -m pytest -m gpu."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import step as benchmark
from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.models.bert import BertConfig
from bert_jax.models.layers.attention import attention
from bert_jax.models.layers.masks import make_mask
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.pretraining import Pretraining
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


ONE = [[300], [512], [17], [0]]
SEVERAL = [[300, 150, 0], [100, 200, 212], [512, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
@pytest.mark.parametrize("pattern", ["bidirectional", "causal", "window"])
@pytest.mark.parametrize("lengths", [ONE, SEVERAL], ids=["one", "several"])
def test_cudnn_attends_as_einsum_in_float32(lengths, pattern, some):
    """By lengths, causality, ranges and masks (tests/models/layers/test_cudnn.py has the cases).

    The lowest mask value is -inf in bfloat16. The last row is padding.
    """
    rng = np.random.default_rng(0)
    heads = [jnp.asarray(rng.standard_normal((4, 512, 4, 64)), jnp.bfloat16) for _ in range(3)]
    ids, places = np.zeros((2, 4, 512), np.int32)
    for row, row_lengths in enumerate(lengths):
        begins = np.cumsum([0, *row_lengths])
        for number, (begin, end) in enumerate(zip(begins, begins[1:], strict=False), 1):
            ids[row, begin:end], places[row, begin:end] = number, np.arange(end - begin)
    lowest = float(np.finfo(np.float32).min)
    mask = make_mask(jnp.asarray(ids), jnp.asarray(places), pattern, 64, lowest, len(lengths[0]))
    is_token = ids > 0
    if some:
        read = np.sort(rng.integers(0, 512, (4, 40)))
        heads[0] = jnp.take_along_axis(heads[0], jnp.asarray(read)[:, :, None, None], axis=1)
        mask, is_token = mask.at_queries(jnp.asarray(read)), np.take_along_axis(is_token, read, 1)
    weights = rng.standard_normal(heads[0].shape) * is_token[:, :, None, None]

    def run(implementation, *heads):
        def total(query, key, value):
            found, _ = attention(query, key, value, mask, implementation=implementation)
            found = found.astype(jnp.float32)
            return (found * jnp.asarray(weights, jnp.float32)).sum(), found

        return jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*heads)

    grads, found = run("cudnn", *heads)
    exact_grads, exact = run("einsum", *(x.astype(jnp.float32) for x in heads))
    assert np.isfinite(np.asarray(found, np.float32)).all()
    pairs = [(np.asarray(found)[is_token], np.asarray(exact)[is_token])]
    for one, other in [*pairs, *zip(grads, exact_grads, strict=True)]:
        one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
        assert np.isfinite(one).all()
        assert np.linalg.norm(one - other) < 1e-2 * np.linalg.norm(other)  # bfloat16 has 8 bits


def run_steps(device, count, dtype="float32", **fields):
    """Returns the losses of training steps of BERT-Tiny on a device, and its parameters."""
    config = BertConfig.of_size("tiny", vocab_size=benchmark.VOCAB_SIZE, dtype=dtype, **fields)
    batch = benchmark.make_batch(8, 128)
    task = Pretraining(model=config, rule=benchmark.masking_rule(batch))
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
