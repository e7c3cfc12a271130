"""A step is the same on a mesh and in two programs, and is applied only if it is finite.

That the gradients of microbatches add up to that of the batch is shown for the losses of several
tasks in tests/tasks/test_auxiliary.py.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.losses import Sum
from bert_jax.training.state import TrainState, abstract_state, init_state, make_key
from bert_jax.training.step import TrainStep, _jit_train_step, apply_gradient, eval_step
from tests.tiny import make_batch, make_mesh, make_task

KEYS = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}
OPTIMIZER = OptimizerConfig(
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
STEPS, WARMUP, ROWS = 100, 2, 8
MESH = (4, 2, 1)
TX, _ = make_optimizer(OPTIMIZER, STEPS, WARMUP)
TASK = make_task(num_layers=1, num_heads=4)


@functools.cache
def make_step(shape=(1, 1, 1), in_two=False, nonfinite_limit=1) -> TrainStep:
    """Returns the training step on a mesh of a shape, with dropout and in two microbatches."""
    return _jit_train_step(
        TASK,
        OPTIMIZER,
        make_mesh(*shape),
        batch_size=ROWS,
        steps=STEPS,
        warmup_steps=WARMUP,
        max_microbatches=2,
        log_every=2,
        nonfinite_limit=nonfinite_limit,
        in_two=in_two,
    )


def new_state(shape=(1, 1, 1)):
    return init_state(TASK, TX, make_mesh(*shape), make_key(0, "init"))


def batches(shape=(1, 1, 1), count=3):
    mesh = make_mesh(*shape)
    return [sharding.shard_batch(mesh, make_batch(ROWS, seed=i), ROWS, 0) for i in range(count)]


@functools.cache
def run(shape=(1, 1, 1), in_two=False):
    """Returns the state after some steps, and the MLM loss of each."""
    state, step, losses = new_state(shape), make_step(shape, in_two), []
    for batch in batches(shape):
        state, metrics = step(state, batch, KEYS)
        losses.append(float(metrics.sums["masked_lm_loss"].numerator))
    return state, losses


def test_steps_are_the_same_on_a_mesh_and_in_two_programs():
    """tests/devices/test_meshes.py has other meshes."""
    state, losses = run()
    other, other_losses = run(MESH, in_two=True)
    np.testing.assert_allclose(losses, other_losses, rtol=1e-5)
    assert int(other.step) == 3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), state.params, other.params
    )


def test_the_state_keeps_its_shardings():
    """Those of the new state, and of the parameters' moments."""
    like = abstract_state(TASK, TX, make_mesh(*MESH))
    for state in (new_state(MESH), run(MESH, in_two=True)[0]):
        jax.tree.map(lambda a, b: a.sharding == b.sharding or pytest.fail(str(a)), state, like)
    for tree in (like.params, optax.tree.get(like.opt_state, "mu")):
        kernel = tree["bert"]["encoder"]["layer_0"]["intermediate"]["kernel"]
        assert kernel.sharding.spec == PartitionSpec("fsdp", "tensor")


@pytest.mark.parametrize("in_two, nonfinite_limit", [(False, 1), (True, 1), (True, 0)])
def test_a_step_copies_neither_parameters_nor_optimizer_state(in_two, nonfinite_limit):
    """The new arrays take the memory of the old ones, which the caller has donated."""
    step = make_step(in_two=in_two, nonfinite_limit=nonfinite_limit)
    state = abstract_state(TASK, TX, make_mesh(1, 1, 1))
    program, arguments = list(step.programs(state, batches()[0], KEYS))[-1]
    compiled = program.lower(*arguments).compile()
    leaves = jax.tree.leaves((state.params, state.opt_state))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= size
    if in_two:  # otherwise the activations are among them
        assert memory.temp_size_in_bytes < size / 3, "more than a copy of the parameters"
    assert not re.findall(r"f32\[\d+,\d+\]\S* copy\(", compiled.as_text())


def make_small_state(tx):
    params = {"kernel": jnp.ones((3, 4)), "bias": jnp.zeros(4)}
    return TrainState(jnp.int32(0), params, tx.init(params), jnp.int32(0))


def test_the_norm_of_the_update_is_that_of_logged_steps():
    state = make_small_state(tx := optax.sgd(0.1))
    rng = np.random.default_rng(0)
    grads = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), state.params)
    sums = {"masked_lm_loss": Sum(jnp.float32(1.0), jnp.float32(1.0))}
    apply = jax.jit(functools.partial(apply_gradient, tx=tx, steps=5, log_every=2))
    expected = 0.1 * np.sqrt(
        sum(np.square(g, dtype=np.float64).sum() for g in jax.tree.leaves(grads))
    )
    for is_logged in (False, True, False, True, True):  # the last step always is
        state, metrics = apply(state, grads, sums, state.carry)
        np.testing.assert_allclose(metrics.update_norm, expected * is_logged, rtol=1e-6)


def test_a_nonfinite_step_changes_nothing():
    step, good = make_step(), batches()[0]
    bad = good | {"next_sentence_weights": good["next_sentence_weights"] * np.nan}

    def apply(state, batch):
        """The step gives the buffers of the state away: it gets copies."""
        return step(jax.tree.map(lambda x: x.copy(), state), batch, KEYS)

    def assert_unchanged(state, before):
        jax.tree.map(np.testing.assert_array_equal, state.params, before.params)
        jax.tree.map(np.testing.assert_array_equal, state.opt_state, before.opt_state)

    state = new_state()
    skipped, metrics = apply(state, bad)
    assert not metrics.applied and not metrics.finite["next_sentence_loss"]
    assert metrics.finite["masked_lm_loss"]
    assert_unchanged(skipped, state)
    assert int(skipped.step) == 1 and int(skipped.nonfinite_streak) == 1

    after_good, metrics = apply(skipped, good)
    assert metrics.applied and int(after_good.nonfinite_streak) == 0

    # Past the limit no update is applied, until the host reads the metrics.
    latched, _ = apply(apply(skipped, bad)[0], bad)
    stuck, metrics = apply(latched, good)
    assert not metrics.applied
    assert_unchanged(stuck, state)


def test_a_nonfinite_step_that_ends_the_run_keeps_the_parameters():
    state = make_small_state(tx := optax.sgd(0.1))
    grads = jax.tree.map(jnp.ones_like, state.params)
    for value, is_applied in ((1.0, True), (np.nan, False)):
        sums = {"masked_lm_loss": Sum(jnp.float32(value), jnp.float32(1.0))}
        after, metrics = apply_gradient(state, grads, sums, state.carry, tx=tx)
        assert bool(metrics.applied) == is_applied
        same = jax.tree.map(np.array_equal, after.params, state.params)
        assert all(jax.tree.leaves(same)) != is_applied


def test_every_evaluation_has_the_same_masks():
    step = jax.jit(functools.partial(eval_step, key=make_key(0, "eval_masking"), task=TASK))
    params, batch = new_state().params, make_batch(ROWS)
    first, again, other = (step(params, batch, number=n)[0] for n in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert float(first["masked_lm_loss"].numerator) != float(other["masked_lm_loss"].numerator)
