"""Workdirs with random parameters: tests check how predictions are computed, not their quality."""

import dataclasses
import functools
import importlib
import pathlib
import random
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.data.labelled.texts import Text
from bert_jax.devices import sharding
from bert_jax.inference.loading import TrainedModel, load_model
from bert_jax.inference.predictor import Predictor
from bert_jax.tasks import task
from bert_jax.tasks.tagging import task as tagging
from bert_jax.tools.outputs.inputs import find_inputs
from bert_jax.tools.outputs.predictions import predict
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.listener import Listener
from bert_jax.training.state import abstract_params
from bert_jax.training.workdir import load_workdir_tokenizer, write_labels
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WORDS = ["the", "list", "is", "re", "##turn", "##ed", "una", "##ffa", "##ble", ",", ".", "naive"]
VOCABULARY = [*tiny.SPECIAL, *WORDS]
TAGS = ("O", "B-PER", "I-PER")
# Texts to score: of several lengths, empty, with a mask, a pair.
SCORED_TEXTS = [
    Text("The list is returned."),
    Text(""),
    Text("list " * 20),
    Text("unaffable [MASK] list"),
    Text("the list", "is naive , returned"),
    Text("naive"),
]
LABELS = {"classification": ("bad", "good"), "tagging": TAGS}
FINE_TUNING = {
    "global_batch_size": 8,
    "data__bucket_lengths": (12, 24),
}

MakeRun = Callable[..., tuple[RunConfig, str]]
MakeWorkdir = Callable[..., str]


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Returns texts of 1 to 16 random words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 16))) for _ in range(count)]


def random_params(like: Any, seed: int = 0) -> Any:
    """Returns parameters far from initial ones: biases and scales are random too."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        centre = 1.0 if path[-1].key == "scale" else 0.0
        value = (centre + 0.2 * rng.standard_normal(leaf.shape)).astype(np.float32)
        return jax.device_put(value, leaf.sharding)

    return jax.tree_util.tree_map_with_path(draw, like)


def _small_config(name: str, changes: dict[str, Any]) -> RunConfig:
    name, _, argument = name.partition(":")
    get_config = importlib.import_module(f"configs.{name}").get_config
    config = parse(get_config(argument) if argument else get_config())
    sizes = {
        "model__vocab_size": len(VOCABULARY),
        "model__num_layers": 1,
        "model__max_position_embeddings": 40,
    }
    sizes |= tiny.rows_of(config, 24)
    sizes |= {} if config.has_corpus else FINE_TUNING
    if config.task.name == "span":
        sizes |= {"task__max_query_length": 8, "task__doc_stride": 8}
    return config.replace(tiny.make_overrides(**sizes | changes))


def close(found: Any, expected: Any) -> None:
    """Asserts that JSON values are equal, numbers up to the rounding of float32."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for name in found:
            close(found[name], expected[name])
    elif isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    else:
        assert found == expected


class Lines(Listener):
    """Keeps the lines and the last progress that are reported."""

    def __init__(self):
        self.lines: list[str] = []
        self.last = (0, 0)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, step: int, steps: int) -> None:
        self.last = (step, steps)


def open_model(
    workdir: str, batch_tokens: int = 4096, config: RunConfig | None = None
) -> Predictor:
    """Returns a predictor of a workdir, which is read once; `config` replaces the workdir's."""
    model = load_model(workdir, lambda _: config) if config else _load(workdir)
    return Predictor(model, batch_tokens)


@functools.cache
def _load(workdir: str) -> TrainedModel:
    return load_model(workdir)


def predict_file(
    config: RunConfig,
    workdir: str,
    path: str,
    output: str,
    top_k: int = 5,
    listener: Listener | None = None,
) -> int:
    """Writes the predictions of a workdir for a file, as the command `predict` does."""
    model = load_model(workdir, lambda _: config)
    return predict(model, find_inputs([path]), output, top_k, listener)


@pytest.fixture(scope="session")
def make_run(tmp_path_factory) -> MakeRun:
    """Returns a function that writes a workdir and returns its configuration and path.

    Its arguments: name of a configuration with an optional argument ("glue:mrpc"), or one that is
    taken as it is; labels; name and bytes of another vocabulary than VOCABULARY; and changes with
    "__" in the place of dots.
    """

    def make(
        name: str | RunConfig,
        labels: tuple[str, ...] = (),
        vocabulary: tuple[str, bytes] = ("vocab.txt", ("\n".join(VOCABULARY) + "\n").encode()),
        **changes: Any,
    ) -> tuple[RunConfig, str]:
        folder = tmp_path_factory.mktemp("run")
        (folder / vocabulary[0]).write_bytes(vocabulary[1])
        config = name if isinstance(name, RunConfig) else _small_config(name, changes)
        data = config.task
        if data.labels is not None:
            names = data.labels or labels or LABELS.get(config.task.name, ())
            data = dataclasses.replace(data, labels=names)
            write_labels(str(folder), data.labels)
        tokenizer = load_workdir_tokenizer(str(folder), config)
        task = data.bind(config.model, tokenizer)
        checkpoints = Checkpoints(str(folder))
        checkpoints.save_params(random_params(abstract_params(task, sharding.make_mesh())), {})
        checkpoints.close()
        store.save(config, str(folder))
        return config, str(folder)

    return make


@pytest.fixture(scope="session")
def classifier(make_run) -> tuple[RunConfig, str]:
    return make_run("classification")


@pytest.fixture(scope="session")
def make_workdir(make_run) -> MakeWorkdir:
    """Returns a function that makes the workdir of a pre-trained model; see `make_run`."""

    def make(**changes: Any) -> str:
        values = {
            "phases": ((40, 1.0),),
            "model__vocab_size": len(VOCABULARY) + 3,  # rows that no piece has
        }
        return make_run("base", **values | changes)[1]

    return make


@pytest.fixture
def set_window(monkeypatch) -> Callable[[int], None]:
    """Returns a function that sets the number of examples that are predicted together."""

    def set_to(size: int) -> None:
        for module in (task, tagging):
            monkeypatch.setattr(module, "WINDOW", size)

    return set_to


@pytest.fixture(scope="session")
def workdir(make_workdir) -> str:
    return make_workdir(model__num_layers=4)


@pytest.fixture(scope="session")
def torch_twin(workdir) -> Any:
    """BertForPreTraining of transformers with the weights of `workdir`."""
    from tests.twins import make_twin

    model = open_model(workdir).model
    return make_twin("BertForPreTraining", model.encoder, jax.device_get(model.params))
