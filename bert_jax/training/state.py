"""The state of training, and its creation directly in its shardings."""

import dataclasses
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.models import MODELS, heads
from bert_jax.optim.average import swap_average
from bert_jax.tasks.task import Task

# The purposes of random keys. The purpose is folded into the seed's key first, the step or batch
# number second, so that every random decision is a pure function of (seed, purpose, number).
PURPOSES = {"init": 0, "dropout": 1, "masking": 2, "eval_masking": 3, "generation": 4}


@flax.struct.dataclass
class TrainState:
    """What a step changes.

    Attributes:
      step: int32[], steps so far, including those not applied; the number of the next batch.
      params: float32 tree.
      opt_state: the optax state; moments have the structure of `params`.
      nonfinite_streak: int32[], consecutive latest steps that were not applied because the loss
        or the gradient was not finite.
      carry: what the model carries from a batch to the next one, a tree of float32[batch, ...];
        `()` for a task that carries nothing.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    nonfinite_streak: jax.Array
    carry: Any = ()


def swapped(state: TrainState) -> TrainState:
    """Returns the state with the parameters and their mean exchanged.

    With `optimizer.average_fraction`, evaluations and checkpoints use the swapped state; a second
    call restores the state that is trained. Without it, the state is unchanged.
    """
    params, opt_state = swap_average(state.params, state.opt_state)
    return dataclasses.replace(state, params=params, opt_state=opt_state)


def make_key(seed: int, purpose: str) -> jax.Array:
    """Returns the key (threefry2x32) of all randomness for one purpose."""
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), PURPOSES[purpose])


def parameter_rules(task: Task) -> sharding.Rules:
    """Returns the sharding rules of all parameters of a task's model, the encoder's first."""
    return (*MODELS[task.model.name].rules, *heads.HEAD_RULES)


def init_params(task: Task, key: jax.Array) -> Any:
    """Returns the initial parameters of a task's model, float32."""
    return task.make_model().init(key, task.example_batch(), deterministic=True)["params"]


def abstract_params(task: Task, mesh: Mesh) -> Any:
    """Returns shapes, dtypes and shardings of the parameters."""
    params = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    where = sharding.parameter_shardings(mesh, parameter_rules(task), params)
    return sharding.abstract(params, where)


def abstract_state(
    task: Task, tx: optax.GradientTransformation, mesh: Mesh, batch_size: int = 0
) -> TrainState:
    """Returns shapes, dtypes and shardings of the state; no array is created.

    Args:
      task: decides the model.
      tx: decides the optimizer's state.
      mesh: the devices.
      batch_size: rows of a batch, which determine the size of the carry.
    """

    def shapes(key):
        return _new_state(task, init_params(task, key), tx, batch_size)

    state = jax.eval_shape(shapes, jax.random.key(0))
    where = sharding.state_shardings(mesh, parameter_rules(task), state)
    return sharding.abstract(state, where)


def init_state(
    task: Task,
    tx: optax.GradientTransformation,
    mesh: Mesh,
    key: jax.Array,
    params: Any = None,
    batch_size: int = 0,
    embeddings: Mapping[str, jax.Array] = MappingProxyType({}),
) -> TrainState:
    """Returns the state before the first step, created on the devices that hold it.

    Args:
      task: decides the model.
      tx: decides the optimizer's state.
      mesh: the devices.
      key: random key for the initial parameters.
      params: initial parameters in their shardings; None: random ones.
      batch_size: rows of a batch, which determine the size of the carry.
      embeddings: tables that replace random ones, by path, float32[vocab, size]. Rows of zeros keep
        the random values; the others are scaled to their root mean square.
    """
    where = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(task, tx, mesh, batch_size))

    def from_params(params):
        return _new_state(task, params, tx, batch_size)

    if params is not None:
        return jax.jit(from_params, out_shardings=where)(params)

    def from_key(key, embeddings):
        params = flatten(init_params(task, key))
        for path, rows in embeddings.items():
            params[path] = _replace_rows(params[path], rows)
        return from_params(unflatten(params))

    return jax.jit(from_key, out_shardings=where)(key, dict(embeddings))


def _replace_rows(random: jax.Array, rows: jax.Array) -> jax.Array:
    """Returns `rows`, scaled to the root mean square of `random`, whose rows replace zeros."""
    is_known = jnp.any(rows != 0, axis=-1, keepdims=True)
    mean = jnp.square(rows).sum() / (is_known.sum() * rows.shape[-1])
    scale = jnp.sqrt(jnp.square(random).mean() / mean)
    return jnp.where(is_known, rows * scale, random)


def init_some(
    task: Task, mesh: Mesh, key: jax.Array, paths: Collection[str]
) -> dict[str, jax.Array]:
    """Returns some of the initial parameters, by path, in their shardings.

    The others are not computed: a program for all of them takes seconds to compile.
    """
    like = flatten(abstract_params(task, mesh))
    where = {path: like[path].sharding for path in paths}

    def make(key):
        params = flatten(init_params(task, key))
        return {path: params[path] for path in where}

    return jax.jit(make, out_shardings=where)(key)


def _new_state(
    task: Task, params: Any, tx: optax.GradientTransformation, batch_size: int
) -> TrainState:
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        nonfinite_streak=jnp.zeros((), jnp.int32),
        carry=task.init_carry(batch_size),
    )


def init_carry(task: Task, mesh: Mesh, batch_size: int) -> Any:
    """Returns `Task.init_carry` on the devices, sharded like a batch."""
    where = sharding.rows_sharding(mesh, batch_size)
    return jax.jit(lambda: task.init_carry(batch_size), out_shardings=where)()
