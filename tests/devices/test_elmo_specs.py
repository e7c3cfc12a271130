"""The PartitionSpecs of ELMo's parameters on 2 x 2 x 2 devices against their golden file."""

import os
import pathlib

import jax
import pytest

from bert_jax.devices import sharding
from bert_jax.devices.trees import path_name
from bert_jax.models import make_encoder
from bert_jax.models.elmo import RULES
from bert_jax.models.model import parameter_shapes
from bert_jax.tasks.task import example_batch
from tests.models.test_elmo import make_elmo_config

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "partition_specs_elmo.txt"
FILTERS = ((1, 2), (3, 4))


@pytest.mark.parametrize("tokens", ["characters", "embeddings"])
def test_partition_specs_are_those_of_the_golden_file(tokens):
    config = make_elmo_config(num_layers=1, filters=FILTERS, tokens=tokens)
    shapes = {"elmo": parameter_shapes(make_encoder(config), example_batch())}
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
    placed = jax.tree_util.tree_flatten_with_path(
        sharding.parameter_shardings(mesh, RULES, shapes)
    )[0]
    lines = [f"{path_name(path)}: {tuple(leaf.spec)}\n" for path, leaf in placed]
    golden = GOLDEN.with_stem(f"{GOLDEN.stem}_{tokens}")
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text("".join(lines))
    assert "".join(lines) == golden.read_text(), "if it is right: UPDATE_GOLDENS=1 pytest"
