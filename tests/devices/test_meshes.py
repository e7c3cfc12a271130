"""Training steps on meshes: what the devices send each other, and equal losses.

The sizes are the smallest that eight devices can share, so that goldens show the number of
collectives, and what is sent besides parameters and their gradients.
"""

import dataclasses
import importlib
import os
import pathlib
import random
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.config.store import parse
from bert_jax.devices import sharding
from bert_jax.optim.make import make_optimizer
from bert_jax.tools.doctor.hlo import Collective, totals
from bert_jax.tools.doctor.programs import plan, programs
from bert_jax.training.feed import host_batch
from bert_jax.training.state import abstract_state
from bert_jax.training.step import make_train_step
from tests.tiny import make_mesh
from tests.tools.doctor.conftest import small_config
from tests.training import labelled_files
from tests.training.conftest import CHANGES
from tests.training.conftest import SMALL as SMALL_LABELLED

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "collectives"
MESHES = {
    "data": (8, 1, 1),
    "fsdp": (1, 8, 1),
    "data x fsdp": (2, 4, 1),
    "fsdp x tensor": (1, 4, 2),
}
STEPS = 3
BASE = {
    "phases": ((16, 1.0),),
    "optimizer.learning_rate": 1e-2,
    "optimizer.schedule": "constant",
}
PACKED = {"data.max_examples_per_row": 2}
# Name of a case -> a model of `small_config`, and changes of its configuration.
MODELS = {
    "bert": ("tiny", {}),
    "gpt": ("gpt", {}),
    "left_to_right": ("left_to_right", {}),
    "fast": ("fast:tiny", {}),
    "modernbert": ("modernbert", {}),
    "elmo": ("elmo", {"model.hidden_size": 16}),
}
FORMS = {
    "packed": ("tiny", PACKED),
    "remat": ("tiny", {"model.remat": True}),
    "microbatches": ("tiny", {"microbatch_size": 8}),
}
LABELLED = {
    "classification": labelled_files.write_texts,
    "tagging": labelled_files.write_words,
    "span": labelled_files.write_questions,
    "multiple_choice": labelled_files.write_choices,
    "embedding": labelled_files.write_pairs,
}
CASES = [
    *((name, mesh) for name in MODELS for mesh in MESHES),
    *((name, "fsdp x tensor") for name in (*FORMS, *LABELLED)),
]


def is_slow(name: str, mesh: str) -> bool:
    """Whether others stand for a case: BERT for all meshes, these for what models differ in."""
    others = ("left_to_right", "classification", "span", "multiple_choice")
    return name in others or (name != "bert" and mesh in ("fsdp", "data x fsdp"))


@pytest.fixture(scope="module", autouse=True)
def compiled_here():
    """Compiles each program in this process: warnings of XLA are not in a cache."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def make_config(tmp_path_factory):
    """Returns a function (name of a case) -> its configuration, without a mesh."""

    def make(name: str):
        if name not in LABELLED:
            model, changes = (MODELS | FORMS)[name]
            return small_config(model).replace(BASE | changes)
        folder = tmp_path_factory.mktemp(name)
        file, vocabulary = folder / f"train{_suffix(name)}", folder / "vocab.txt"
        LABELLED[name](file, random.Random(0), 32)
        vocabulary.write_text("\n".join(labelled_files.VOCABULARY) + "\n")
        config = importlib.import_module(f"configs.{name}").get_config()
        files = {"data.train": str(file), "data.eval": str(file), "data.vocab": str(vocabulary)}
        columns = CHANGES["embedding"][1] if name == "embedding" else {}
        config.update_from_flattened_dict(SMALL_LABELLED | files | {"steps": 10} | columns)
        return parse(config).replace({"model.pad_vocab_to_multiple_of": 8})

    return make


def _suffix(name: str) -> str:
    return {"tagging": ".conll", "span": ".json", "multiple_choice": ".csv"}.get(name, ".tsv")


def array_of(name: str, shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Returns an array of a batch, whose rows have two examples."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {seed}".encode()))
    places = np.broadcast_to(np.arange(shape[-1]), shape)
    middle = max(1, shape[-1] // 2)
    half = places // middle
    values = {
        "example_ids": 1 + half,
        "position_ids": places % middle,
        "cls_positions": places * 8,
        "token_type_ids": half,
        "next_sentence_labels": rng.integers(2, size=shape),
        "next_sentence_weights": np.ones(shape),
        "target_weights": np.ones(shape),
    }
    return np.asarray(values.get(name, rng.integers(5, 64, size=shape)), dtype)


def run_steps(config, mesh) -> tuple[list[np.ndarray], Mapping[str, Collective]]:
    """Returns the Sums and gradient norms of some steps with dropout, and what devices send."""
    run = plan(config, mesh)
    phase = run.phases[0]
    step = make_train_step(run, phase, warmup_steps=0)
    tx, _ = make_optimizer(config.optimizer, run.steps, 0)
    abstract = abstract_state(run.task_at(phase), tx, mesh, phase.batch_size)

    def fill(path, leaf):
        name = jax.tree_util.keystr(path)
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        is_param = name.startswith(".params")
        values = 0.2 * rng.normal(size=leaf.shape) if is_param else np.zeros(leaf.shape)
        return sharding.put(np.asarray(values, leaf.dtype), leaf)

    state = jax.tree_util.tree_map_with_path(fill, abstract)
    keys = {purpose: run.key(purpose) for purpose in ("dropout", "masking")}
    form = programs(run)[0].arguments[1]  # an abstract batch

    def batch_of(number: int) -> Any:
        if not config.has_corpus:
            rows = run.training_rows(phase).batch_rows(number)
            return run.put_batch(host_batch(run, phase, number), rows)
        return {
            name: sharding.put(array_of(name, like.shape, like.dtype, number), like)
            for name, like in form.items()
        }

    compiled = step.first.lower(state, batch_of(0), keys, {}).compile()
    step, found = dataclasses.replace(step, first=compiled), []
    for number in range(STEPS):
        state, metrics = step(state, batch_of(number), keys)
        sums = {name: (item.numerator, item.denominator) for name, item in metrics.sums.items()}
        found += [*map(np.asarray, jax.tree.leaves(sums)), np.asarray(metrics.gradient_norm)]
    return found, totals(compiled.as_text()).collectives


@pytest.fixture(scope="module")
def losses():
    """{name of a model: losses on the first mesh that it was trained on}."""
    return {}


@pytest.mark.parametrize(
    ("name", "mesh"),
    [pytest.param(*case, marks=[pytest.mark.slow] * is_slow(*case)) for case in CASES],
)
def test_hidden_states_are_split_by_rows_alone(name, mesh, make_config, losses, capfd):
    config, sizes = make_config(name), MESHES[mesh]
    axes = dict(zip(("mesh.data", "mesh.fsdp", "mesh.tensor"), sizes, strict=True))
    found, moved = run_steps(config.replace(axes), make_mesh(*sizes))
    assert "Involuntary full rematerialization" not in capfd.readouterr().err
    np.testing.assert_allclose(found, losses.setdefault(name, found), rtol=1e-4)
    if jax.__version__.startswith("0.10."):  # XLA of other versions differs
        compare_with_golden(name, mesh, moved)


def compare_with_golden(name: str, mesh: str, moved: Mapping[str, Collective]) -> None:
    lines = "".join(f"{kind} {found.count} {found.bytes}\n" for kind, found in moved.items())
    path = GOLDENS / f"{name} on {mesh}.txt".replace(" ", "_")
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines)
    assert lines == path.read_text(), "if it is right: UPDATE_GOLDENS=1 pytest"


def test_what_xla_rematerializes_is_seen(capfd):
    """The warning that the other tests look for."""
    mesh = make_mesh(1, 4, 2)
    by_columns, by_rows = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in ((None, "fsdp"), ("tensor",))
    )

    def move(x):
        return jax.lax.with_sharding_constraint(x, by_rows) * 2

    x = jax.ShapeDtypeStruct((32, 16), np.float32, sharding=by_columns)
    jax.jit(move, out_shardings=by_rows).lower(x).compile()
    assert "Involuntary full rematerialization" in capfd.readouterr().err
