"""Configurations of each model at the smallest size that eight devices can share."""

import functools
import importlib
from typing import Any

import pytest

from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.tools.compile.plan import plan, programs
from bert_jax.tools.compile.program import compile_program
from bert_jax.training.run import make_checked_mesh

SMALL = {
    "steps": 100,
    "global_batch_size": 16,
    "phases": ((16, 0.9), (32, 0.1, 8)),
    "mesh.data": 2,
    "mesh.fsdp": 2,
    "mesh.tensor": 2,
    "prng_impl": "threefry2x32",
}
SIZES = {
    "model.vocab_size": 64,
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 32,
}
ELMO = {
    "model.vocab_size": 64,
    "model.hidden_size": 8,
    "model.num_layers": 1,
    "model.cell_size": 16,
    "model.filters": ((1, 8), (2, 8)),
    "model.highway_layers": 1,
    "head.num_samples": 8,
}
# Name of a configuration, or of a model -> what makes it small.
CONFIGS = {
    "tiny": SIZES,
    "gpt": SIZES,
    "left_to_right": SIZES,
    "fast:tiny": SIZES | {"model.intermediate_size": 24},
    "modernbert": SIZES | {"model.intermediate_size": 24, "model.name": "modernbert"},
    "elmo": ELMO,
}
_CONFIG_OF = {"modernbert": "fast:tiny"}


def small_config(name: str, **changes: Any) -> RunConfig:
    """Returns a small configuration; `changes` have "__" instead of dots."""
    module, _, argument = _CONFIG_OF.get(name, name).partition(":")
    arguments = filter(None, [argument])
    config = parse(importlib.import_module(f"configs.{module}").get_config(*arguments))
    dotted = {field.replace("__", "."): value for field, value in changes.items()}
    return config.replace(SMALL | CONFIGS[name] | dotted)


@pytest.fixture(scope="session")
def make_plan():
    """Returns a function (name of a configuration, **changes) -> its run, without data."""

    def make(name: str = "tiny", **changes: Any):
        config = small_config(name, **changes)
        return plan(config, make_checked_mesh(config))

    return make


@pytest.fixture(scope="session")
def compiled(make_plan):
    """Returns a function (name of a configuration) -> its compiled programs."""
    return functools.cache(lambda name: [*map(compile_program, programs(make_plan(name)))])
