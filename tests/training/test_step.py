"""An update is the same in microbatches, on every mesh, and in every order of retries."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.optim.make import make_optimizer
from bert_jax.training.state import abstract_state, init_params, init_state, make_key
from bert_jax.training.step import _jit_train_step, eval_step, train_step
from tests.tiny import make_batch, make_task

KEYS = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}


SETTINGS: dict[str, Any] = dict(
    name="bert_adam",
    learning_rate=1e-3,
    schedule="bert_linear",
    weight_decay=0.01,
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-6,
    clip_norm=1.0,
    no_decay=("layer_norm", "bias"),
    encoder="bert",
)


def make_tx(**changes):
    return make_optimizer(OptimizerConfig(**SETTINGS | changes), num_steps=100, warmup_steps=2)[0]


def run(task, batches, mesh_shape=(1, 1, 1), num_microbatches=1, **changes):
    """Trains on the batches on a mesh of the first devices; returns (state, metrics of each)."""
    size = int(np.prod(mesh_shape))
    devices = np.array(jax.devices()[:size]).reshape(mesh_shape)
    mesh = jax.sharding.Mesh(devices, sharding.AXES)
    tx = make_tx(**changes)
    state = init_state(task, tx, mesh, make_key(0, "init"))
    function = functools.partial(train_step, task=task, tx=tx, num_microbatches=num_microbatches)
    step = jax.jit(function, donate_argnums=0)
    history = []
    for batch in batches:
        rows = batch["input_ids"].shape[0]
        state, metrics = step(state, sharding.shard_batch(mesh, batch, rows, 0), KEYS)
        history.append(jax.device_get(metrics))
    return jax.device_get(state), history


def test_an_update_copies_neither_parameters_nor_optimizer_state():
    """They are written in the place of the old ones, which the caller has given away."""
    task, tx, mesh = make_task(), make_tx(), sharding.make_mesh(devices=jax.devices()[:1])
    state = abstract_state(task, tx, mesh, 4)
    batch = sharding.shard_batch(mesh, make_batch(4), 4, 0)
    step = jax.jit(functools.partial(train_step, task=task, tx=tx), donate_argnums=0)
    text = step.lower(state, batch, KEYS).compile().as_text()
    assert "%state_params" in text
    assert not re.findall(r"f32\[\d[\d,]*\]\S* copy\(\S*%(state\S+)\)", text)


def make_params(task):
    return jax.jit(functools.partial(init_params, task))(jax.random.key(1))


def losses(history):
    return [float(m.sums["masked_lm_loss"].numerator) for m in history]


def assert_close(tree, other, tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=tolerance), tree, other)


@functools.cache
def run_with_dropout(mesh_shape):
    return run(
        make_task(num_layers=1, num_heads=4), [make_batch(8, seed=i) for i in range(4)], mesh_shape
    )


@pytest.mark.parametrize(
    "mesh_shape",
    [
        (2, 2, 2),
        pytest.param((8, 1, 1), marks=pytest.mark.slow),
        pytest.param((1, 8, 1), marks=pytest.mark.slow),
    ],
)
def test_training_with_dropout_is_the_same_on_every_mesh(mesh_shape):
    state, history = run_with_dropout((1, 1, 1))
    other_state, other_history = run_with_dropout(mesh_shape)
    np.testing.assert_allclose(losses(history), losses(other_history), rtol=1e-5)
    assert_close(state.params, other_state.params, 1e-5)


def test_microbatches_add_up_to_the_batch():
    """Although the examples have different numbers of masked tokens."""
    task = make_task(num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0)
    batches = [make_batch(8, seed=i) for i in range(3)]
    state, history = run(task, batches)
    parts_state, parts_history = run(task, batches, num_microbatches=4)
    np.testing.assert_allclose(losses(history), losses(parts_history), rtol=1e-5)
    assert_close(state.params, parts_state.params, 1e-6)
    sharded_state, _ = run(task, batches, (4, 1, 1), num_microbatches=2)
    assert_close(state.params, sharded_state.params, 1e-6)


def test_rounded_products_change_an_update_by_their_rounding_alone():
    changes = {"num_layers": 1, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    batches = [make_batch(8, seed=i) for i in range(3)]
    state, history = run(make_task(**changes), batches)
    rounded = make_task(**changes, dtype="bfloat16_products")
    rounded_state, rounded_history = run(rounded, batches, (2, 2, 2))
    np.testing.assert_allclose(losses(history), losses(rounded_history), rtol=2**-8)
    assert losses(history) != losses(rounded_history)
    # Adam's first updates have the size of the rate, whatever the gradient: 1e-3 a step.
    differences = jax.tree.map(
        lambda a, b: np.abs(a - b).mean(), state.params, rounded_state.params
    )
    assert max(jax.tree.leaves(differences)) < 3e-4


def test_the_loss_is_the_mean_over_predictions_plus_the_mean_over_pairs():
    task = make_task(num_layers=1, dropout_rate=0.0, attention_dropout_rate=0.0)
    batch = jax.jit(task.transform)(jax.random.key(0), make_batch(4))
    params = make_params(task)
    apply = jax.jit(functools.partial(task.make_model().apply, deterministic=True))
    outputs = apply({"params": params}, batch)

    log_probs = jax.nn.log_softmax(np.asarray(outputs.masked_lm_logits, np.float64))
    total, count = 0.0, 0
    for row in range(4):
        for slot in range(3):
            if batch["masked_lm_weights"][row, slot]:
                total -= float(log_probs[row, slot, batch["masked_lm_ids"][row, slot]])
                count += 1
    sums = task.losses(outputs, batch)["masked_lm_loss"]
    assert float(sums.denominator) == count
    assert float(sums.numerator) == pytest.approx(total, rel=1e-5)


def test_a_nonfinite_update_changes_nothing():
    task = make_task(num_layers=1)
    tx = make_tx()
    mesh = sharding.make_mesh()
    state = init_state(task, tx, mesh, make_key(0, "init"))
    function = functools.partial(train_step, keys=KEYS, task=task, tx=tx, nonfinite_limit=1)
    step = jax.jit(function)
    good = sharding.shard_batch(mesh, make_batch(8), 8, 0)
    bad = {**good, "next_sentence_weights": good["next_sentence_weights"] * jnp.nan}

    skipped, metrics = step(state, bad)
    assert not metrics.applied and not metrics.finite["next_sentence_loss"]
    assert metrics.finite["masked_lm_loss"]
    jax.tree.map(np.testing.assert_array_equal, skipped.params, state.params)
    jax.tree.map(np.testing.assert_array_equal, skipped.opt_state, state.opt_state)
    assert int(skipped.step) == 1 and int(skipped.nonfinite_streak) == 1

    after_good, metrics = step(skipped, good)
    assert metrics.applied and int(after_good.nonfinite_streak) == 0

    # Past the limit no update is applied, until the host reads the metrics.
    latched, _ = step(step(skipped, bad)[0], bad)
    stuck, metrics = step(latched, good)
    assert not metrics.applied
    jax.tree.map(np.testing.assert_array_equal, stuck.params, state.params)


def test_every_evaluation_has_the_same_masks():
    task = make_task(num_layers=1)
    step = jax.jit(functools.partial(eval_step, key=make_key(0, "eval_masking"), task=task))
    batch = make_batch(8)
    params = make_params(task)
    first, again, other = (step(params, batch, number=n)[0] for n in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert float(first["masked_lm_loss"].numerator) != float(other["masked_lm_loss"].numerator)


def test_the_state_is_created_in_its_shardings():
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
    task, tx = make_task(), make_tx()
    state = init_state(task, tx, mesh, make_key(0, "init"))
    kernel = state.params["bert"]["encoder"]["layer_0"]["intermediate"]["kernel"]
    assert kernel.sharding.spec == jax.sharding.PartitionSpec("fsdp", "tensor")
    like = abstract_state(task, tx, mesh)
    jax.tree.map(lambda a, b: a.sharding == b.sharding or pytest.fail(str(a)), state, like)
    moments = optax.tree.get(state.opt_state, "mu")
    assert moments["bert"]["encoder"]["layer_0"]["intermediate"]["kernel"].sharding.spec == (
        jax.sharding.PartitionSpec("fsdp", "tensor")
    )


def test_an_update_in_two_programs_is_the_update_in_one():
    """With dropout and microbatches, on a mesh that splits parameters."""
    task, batch = make_task(num_layers=1, num_heads=4), make_batch(16)
    mesh = sharding.make_mesh(fsdp=2)
    settings = OptimizerConfig(**SETTINGS)
    states = []
    for in_two in (False, True):
        tx = make_optimizer(settings, 100, 2)[0]
        state = init_state(task, tx, mesh, make_key(0, "init"))
        step = _jit_train_step(
            task,
            settings,
            mesh,
            batch_size=16,
            steps=100,
            warmup_steps=2,
            num_microbatches=2,
            nonfinite_limit=0,
            in_two=in_two,
        )
        on_device = sharding.shard_batch(mesh, batch, 16, 0)
        for _ in range(2):
            state, metrics = step(state, on_device, KEYS)
        states.append((state, metrics))
    one, two = states
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), *states)
    where = [jax.tree.map(lambda leaf: leaf.sharding, state) for state, _ in states]
    assert where[0] == where[1] and int(one[0].step) == int(two[0].step) == 2
