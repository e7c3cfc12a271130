"""What a model carries from batch to batch: by hand, in microbatches, on meshes, in files."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from bert_jax.devices import sharding
from bert_jax.models import MODELS
from bert_jax.tasks.losses import Sum
from bert_jax.tasks.task import Task
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.state import abstract_state, init_carry, init_state, make_key
from bert_jax.training.step import eval_step, train_step

KEYS = {purpose: make_key(0, purpose) for purpose in ("dropout", "masking")}
ROWS, LENGTH, SIZE = 8, 5, 3
RATE = 0.1


@flax.struct.dataclass
class Outputs:
    states: jax.Array
    carry: dict[str, jax.Array]


class Recurrent(nn.Module):
    """state = tanh(x + state @ kernel) at each time; outputs all states."""

    @nn.compact
    def __call__(self, batch, *, deterministic):
        kernel = self.param("kernel", nn.initializers.normal(0.5), (SIZE, SIZE))
        zeros = jnp.zeros((len(batch["x"]), SIZE))
        state, outputs = batch["carry"]["state"] if batch["carry"] else zeros, []
        for time in range(LENGTH):
            state = jnp.tanh(batch["x"][:, time] + state @ kernel)
            outputs.append(state)
        return Outputs(jnp.stack(outputs, axis=1), {"state": state})


@dataclasses.dataclass(frozen=True)
class Config:
    name: str = "recurrent"


@dataclasses.dataclass(frozen=True)
class SumOfStates(Task):
    """The sum of the states is to be the target."""

    model: Any = Config()

    def make_model(self) -> Any:
        return Recurrent()

    def example_batch(self) -> Any:
        return {"x": jnp.zeros((1, LENGTH, SIZE)), "carry": ()}

    def losses(self, outputs, batch):
        errors = (outputs.states.sum(axis=(1, 2)) - batch["target"]) ** 2
        return {"error": Sum(errors.sum(), jnp.float32(len(errors)))}

    def init_carry(self, batch_size):
        return {"state": jnp.zeros((batch_size, SIZE))}

    def carry(self, outputs):
        return outputs.carry


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    row = SimpleNamespace(rules=((r"kernel$", PartitionSpec()),))
    monkeypatch.setitem(MODELS, "recurrent", row)


def make_batches(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.normal(size=(ROWS, LENGTH, SIZE)).astype(np.float32),
            "target": rng.normal(size=ROWS).astype(np.float32),
        }
        for _ in range(count)
    ]


def run(batches, shape=(1, 1, 1), num_microbatches=1, jit=jax.jit):
    """Trains on the batches on a mesh of the first devices; returns all states."""
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    mesh = jax.sharding.Mesh(devices, sharding.AXES)
    task, tx = SumOfStates(), optax.sgd(RATE)
    state = init_state(task, tx, mesh, make_key(0, "init"), batch_size=ROWS)
    where = jax.tree.map(lambda x: x.sharding, abstract_state(task, tx, mesh, ROWS))
    step = functools.partial(train_step, task=task, tx=tx, num_microbatches=num_microbatches)
    step = jit(step, out_shardings=(where, sharding.replicated(mesh)))
    states = [state]
    for batch in batches:
        state, metrics = step(state, sharding.shard_batch(mesh, batch, ROWS, 0), KEYS)
        states.append(state)
    return states


def truncated_backpropagation(kernel: np.ndarray, batches) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and state after training, by hand: no gradient crosses a batch's begin."""
    kernel, state = kernel.astype(np.float64), np.zeros((ROWS, SIZE))
    for batch in batches:
        states = [state]
        for time in range(LENGTH):
            states.append(np.tanh(batch["x"][:, time] + states[-1] @ kernel))
        error = 2 * (sum(x.sum(axis=1) for x in states[1:]) - batch["target"]) / ROWS
        gradient, from_later = np.zeros_like(kernel), np.zeros((ROWS, SIZE))
        for time in reversed(range(LENGTH)):
            inner = (error[:, None] + from_later) * (1 - states[time + 1] ** 2)
            gradient += states[time].T @ inner
            from_later = inner @ kernel.T
        kernel, state = kernel - RATE * gradient, states[-1]
    return kernel, state


def test_states_go_on_from_batch_to_batch_and_gradients_do_not():
    batches = make_batches(3)
    first, *_, last = run(batches)
    assert not first.carry["state"].any()
    kernel, state = truncated_backpropagation(np.asarray(first.params["kernel"]), batches)
    np.testing.assert_allclose(last.params["kernel"], kernel, atol=1e-5)
    np.testing.assert_allclose(last.carry["state"], state, atol=1e-5)


@pytest.mark.parametrize(
    "shape, num_microbatches", [((1, 1, 1), 4), ((4, 2, 1), 1), ((2, 1, 1), 2)]
)
def test_each_row_keeps_its_state_in_microbatches_and_on_meshes(shape, num_microbatches):
    expected = run(make_batches(3))[-1]
    state = run(make_batches(3), shape, num_microbatches)[-1]
    np.testing.assert_allclose(state.carry["state"], expected.carry["state"], atol=1e-6)
    np.testing.assert_allclose(state.params["kernel"], expected.params["kernel"], atol=1e-6)
    assert state.carry["state"].sharding.spec == PartitionSpec(("data", "fsdp"))


def test_a_nonfinite_update_keeps_the_states_before_it():
    batches = make_batches(3)
    batches[1]["x"][3, 2] = np.nan
    _, before, after, later = run(batches)
    np.testing.assert_array_equal(after.carry["state"], before.carry["state"])
    assert int(after.nonfinite_streak) == 1
    assert np.isfinite(later.carry["state"]).all()


def test_an_evaluation_carries_states_too():
    task, batches = SumOfStates(), make_batches(2)
    params = {"kernel": np.full((SIZE, SIZE), 0.3, np.float32)}
    step = functools.partial(eval_step, params, key=make_key(0, "eval_masking"), task=task)
    carry = init_carry(task, sharding.make_mesh(), ROWS)
    for number, batch in enumerate(batches):
        sums, _, carry = step(batch, number=number, carry=carry)
    both = np.concatenate([batch["x"] for batch in batches], axis=1)
    state, total = np.zeros((ROWS, SIZE)), 0.0
    for time in range(2 * LENGTH):
        state = np.tanh(both[:, time] + state @ params["kernel"])
        total = total + state.sum(axis=1) * (time >= LENGTH)
    np.testing.assert_allclose(carry["state"], state, atol=1e-5)
    expected = ((total - batches[1]["target"]) ** 2).sum()
    assert float(sums["error"].numerator) == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_has_the_states(tmp_path):
    *_, last = run(make_batches(2), (4, 2, 1))
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(last, {}, {})
    checkpoints.wait()
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2, 1), sharding.AXES)
    like = abstract_state(SumOfStates(), optax.sgd(RATE), mesh, ROWS)
    restored, _ = checkpoints.restore(2, like)
    np.testing.assert_array_equal(restored.carry["state"], last.carry["state"])
    assert restored.carry["state"].sharding.spec == PartitionSpec(("data", "fsdp"))
    with pytest.raises(ValueError, match=r"- carry/state: float32\[8, 3\]"):
        checkpoints.restore(2, abstract_state(SumOfStates(), optax.sgd(RATE), mesh, 2 * ROWS))
    checkpoints.close()
