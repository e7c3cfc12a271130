"""Workdirs with random weights: what is asked of them is how, not how well, they answer."""

import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config import settings as config_lib
from bert_jax.devices import sharding
from bert_jax.tasks import Pretraining
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.experiment import make_model_config
from bert_jax.training.optim import OptimizerConfig, make_optimizer
from bert_jax.training.state import abstract_params, init_state

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY))  # for configs

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "list", "is", "re", "##turn", "##ed", "una", "##ffa", "##ble", ",", ".", "naive"]
VOCABULARY = [*SPECIAL, *WORDS]

MakeWorkdir = Callable[..., str]


def random_params(like: Any, seed: int = 0) -> Any:
    """Far from their start: every bias and every scale is random too."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if path[-1].key == "scale" else 0.0
        value = (centre + 0.2 * rng.standard_normal(leaf.shape)).astype(np.float32)
        return jax.device_put(value, leaf.sharding)

    return jax.tree_util.tree_map_with_path(draw, like)


def write_workdir(workdir: str, config: Any, params: Any = None) -> str:
    """A workdir with one checkpoint: the given parameters, or random ones."""
    mesh = sharding.make_mesh()
    task = Pretraining(make_model_config(config), None, 8, 1)
    values = config.optimizer.to_dict()
    del values["warmup"]
    tx, _ = make_optimizer(OptimizerConfig(**values), num_steps=1, warmup_steps=0)
    like = abstract_params(task, mesh)
    if params is None:
        params = random_params(like)
    params = jax.tree.map(lambda x, leaf: jax.device_put(x, leaf.sharding), params, like)
    state = init_state(task, tx, mesh, jax.random.key(0), params)
    checkpoints = Checkpoints(workdir)
    checkpoints.save(state, {}, {})
    checkpoints.close()
    config_lib.save(config, workdir)
    return workdir


@pytest.fixture(scope="session")
def make_config():
    """Returns a function that makes the configuration of a small model."""
    from configs import base

    def make(**changes: Any) -> Any:
        config = base.get_config()
        values = {
            "phases": ((40, 1.0),),
            "model.vocab_size": len(VOCABULARY) + 3,  # rows that no piece has
            "model.hidden_size": 16,
            "model.num_layers": 4,
            "model.num_heads": 2,
            "model.intermediate_size": 32,
            "model.max_position_embeddings": 40,
        }
        config.update_from_flattened_dict(values | changes)
        return config

    return make


@pytest.fixture(scope="session")
def make_workdir(make_config, tmp_path_factory) -> MakeWorkdir:
    """Returns a function that makes a workdir; its arguments change the configuration."""

    def make(**changes: Any) -> str:
        folder = tmp_path_factory.mktemp("workdir")
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return write_workdir(str(folder), make_config(**changes))

    return make


@pytest.fixture(scope="session")
def workdir(make_workdir) -> str:
    return make_workdir()
