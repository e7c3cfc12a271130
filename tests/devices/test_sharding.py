"""The mesh, the PartitionSpecs of parameters against their golden file, and every error."""

import dataclasses
import itertools
import os
import pathlib
import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax.config.encoders import make_encoder_config
from bert_jax.config.groups import OptimizerConfig
from bert_jax.devices import sharding
from bert_jax.devices.trees import path_name
from bert_jax.optim.make import make_optimizer
from bert_jax.tasks.auxiliary import Losses
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.span import Span
from bert_jax.tasks.tagging import Tagging
from bert_jax.training.state import abstract_params, abstract_state, parameter_rules
from tests.tiny import SIZES, make_mesh, make_model, make_task

NEXT_TOKEN = ("left_to_right", "gpt")

GOLDENS = pathlib.Path(__file__).parent / "goldens"
OPTIMIZER = OptimizerConfig(learning_rate=1e-3, schedule="constant", no_decay=("bias",))


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(data=2, fsdp=2, tensor=2)


@pytest.fixture
def state(mesh):
    """The abstract state of a model of one layer."""
    tx, _ = make_optimizer(OPTIMIZER, num_steps=10, warmup_steps=0)
    return abstract_state(make_task(num_layers=1), tx, mesh)


def make_next_token_task(name: str) -> CausalLM:
    """A model of one layer that predicts next tokens: of "gpt", or of BERT, "left_to_right"."""
    if name == "left_to_right":
        return CausalLM(model=make_model(num_layers=1, attention_pattern="causal"))
    return CausalLM(model=make_encoder_config({"name": name, **SIZES, "num_layers": 1}))


@pytest.mark.parametrize(
    "name, golden", [("", "partition_specs.txt")] + [(n, f"{n}_specs.txt") for n in NEXT_TOKEN]
)
def test_partition_specs_are_those_of_the_golden_file(name, golden, state, mesh):
    if name:
        tx, _ = make_optimizer(OPTIMIZER, num_steps=10, warmup_steps=0)
        state = abstract_state(make_next_token_task(name), tx, mesh)
    lines = [
        f"{path_name(path)}: {tuple(leaf.sharding.spec)}\n"
        for path, leaf in jax.tree_util.tree_flatten_with_path(state.params)[0]
    ]
    if os.environ.get("UPDATE_GOLDENS"):
        (GOLDENS / golden).write_text("".join(lines))
    assert "".join(lines) == (GOLDENS / golden).read_text(), (
        "if it is right: UPDATE_GOLDENS=1 pytest"
    )


def test_partition_specs_of_heads_are_those_of_the_golden_file(mesh):
    """Every head on the encoders that predict next tokens, with all that can stand between."""
    parts: Any = {"layers": "mix_with_embeddings", "lstm_size": 8, "lstm_layers": 2}
    between, last = {"head": "bilstm"} | parts, {"pool": "last"}
    causal = make_model(num_layers=1, attention_pattern="causal")
    losses, lines = Losses(lm_weight=0.5), []
    four: Any = {"model": causal, "labels": ("a", "b", "c", "d")}
    for name, task in {
        "classification": Classification(**last, **four),
        "classification, bilstm": Classification(**last, **between, **four),
        "multiple_choice, bilstm": MultipleChoice(model=causal, **last, **between),
        "span, bilstm": Span(model=causal, **between),
        "tagging, bilstm_crf": Tagging(head="bilstm_crf", **parts, **four),
    }.items():
        task = dataclasses.replace(task, lm_weight=1.0)
        params = abstract_params(losses.add_to(task), mesh)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
            if re.match("bert/(?!pooler)", where := path_name(path)) is None:
                lines.append(f"{name}: {where}: {tuple(leaf.sharding.spec)}\n")
    golden = GOLDENS / "head_partition_specs.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text("".join(lines))
    assert "".join(lines) == golden.read_text(), "if it is right: UPDATE_GOLDENS=1 pytest"


@pytest.mark.parametrize("name, moments", [("bert_adam", 2), ("adagrad", 1)])
def test_the_moments_follow_their_parameters(name, moments, mesh):
    tx, _ = make_optimizer(dataclasses.replace(OPTIMIZER, name=name), 10, 0)
    state = abstract_state(make_task(num_layers=1), tx, mesh)
    specs = {
        path_name(path): leaf.sharding.spec
        for path, leaf in jax.tree_util.tree_flatten_with_path(state.params)[0]
    }
    followed = 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(state.opt_state)[0]:
        name = path_name(path)
        parameter = next((p for p in specs if name.endswith("/" + p)), None)
        assert leaf.sharding.spec == specs.get(parameter, PartitionSpec())
        followed += parameter is not None
    assert followed == moments * len(specs)


def test_a_parameter_that_no_row_matches_is_an_error():
    with pytest.raises(ValueError, match="No sharding rule matches the parameter 'adapter/gate'"):
        sharding.spec_of(parameter_rules(make_task()), "adapter/gate")


@pytest.mark.parametrize("sizes", [(8, 1, 1), (-1, 1, 1), (1, -1, 2)])
def test_a_mesh_uses_all_devices(sizes):
    mesh = sharding.make_mesh(*sizes)
    assert mesh.devices.size == jax.device_count() == 8
    assert all(size in (-1, got) for size, got in zip(sizes, mesh.shape.values(), strict=True))


@pytest.mark.parametrize(
    "sizes, message",
    [
        *((x, "not use the 8 devices") for x in ((3, 2, 1), (16, 1, 1), (-1, 3, 1), (-1, 16, 1))),
        ((-1, 2, -1), r"Only one of config\.mesh\.data and config\.mesh\.tensor"),
    ],
)
def test_a_mesh_that_does_not_use_all_devices_is_an_error(sizes, message):
    with pytest.raises(ValueError, match=message):
        sharding.make_mesh(*sizes)


@dataclasses.dataclass
class Gpu:
    """One of eight GPUs of a machine."""

    id: int
    platform: str = "gpu"
    device_kind: str = "NVIDIA H100 80GB HBM3"

    @property
    def slice_index(self) -> int:
        return self.id // 8

    process_index = slice_index


@pytest.mark.parametrize(
    ("sizes", "cross"),
    [((4, 4, 2), "data"), ((32, 1, 1), "data"), ((1, 32, 1), "fsdp"), ((2, 8, 2), "data fsdp")],
)
def test_the_first_axes_go_from_machine_to_machine(sizes, cross):
    devices = sharding.arrange(sizes, [Gpu(number) for number in range(32)])
    machines = np.vectorize(lambda device: device.slice_index)(devices)
    assert sorted(device.id for device in devices.flat) == list(range(32))
    found = [name for i, name in enumerate(sharding.AXES) if np.diff(machines, axis=i).any()]
    assert " ".join(found) == cross


def test_parts_of_any_batch_have_little_padding_and_are_those_of_the_padded_batch():
    for shards in (1, 2, 8):
        mesh = make_mesh(shards)
        for rows, parts in itertools.product(range(1, 70), range(1, 9)):
            count, of_part = sharding.even_parts(mesh, rows, parts)
            assert of_part % shards == 0 and count <= parts
            assert rows <= count * of_part < rows + of_part
            assert count == 1 or (of_part - shards) * parts < rows
            assert sharding.padded_rows(mesh, rows, parts) == count * of_part
            assert sharding.even_parts(mesh, count * of_part, parts) == (count, of_part)


@pytest.mark.parametrize(
    "changes, parameter",
    [
        ({"vocab_size": 63}, r"word_embeddings/embedding .*tensor=2 devices: 63 is not divisible"),
        ({"hidden_size": 15, "num_heads": 3}, r"embedding .*fsdp=2 devices: 15 is not divisible"),
    ],
)
def test_a_parameter_that_cannot_be_split_is_named(changes, parameter, mesh):
    tx, _ = make_optimizer(OPTIMIZER, num_steps=10, warmup_steps=0)
    with pytest.raises(ValueError, match=f"{parameter}.*pad_vocab_to_multiple_of"):
        abstract_state(make_task(**changes), tx, mesh)


def test_a_batch_is_split_over_data_and_fsdp_and_is_read_back(mesh):
    start, stop = sharding.local_rows(mesh, 8)
    assert (start, stop) == (0, 8)  # one process holds all
    local = {"a": np.arange(24).reshape(8, 3)}
    batch = sharding.shard_batch(mesh, local, 8, start)
    np.testing.assert_array_equal(batch["a"], local["a"])
    assert batch["a"].sharding.spec == PartitionSpec(("data", "fsdp"))
    assert {shard.data.shape for shard in batch["a"].addressable_shards} == {(2, 3)}
