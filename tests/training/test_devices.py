"""A run is the same, up to rounding, on any number of devices and in microbatches of any size.

For each task: on one device without microbatches, and on two devices, resumed on eight, in
microbatches of two sizes, which divide no batch. Batches have 10 rows, or as many as are packed or
as tokens decide, so that rows of padding fill all but those of one device. Dropout is on.
"""

import contextlib

import numpy as np
import pytest

from bert_jax.config.store import parse
from bert_jax.training import open as opening
from bert_jax.training.train import train
from configs import elmo, left_to_right
from configs import tiny as tiny_bert
from tests import tiny
from tests.resuming import arrays_of, metrics_of, newest_step, train_until
from tests.runs.conftest import write_corpus
from tests.training.conftest import CHANGES
from tests.training.test_elmo_runs import VALUES as ELMO

EVERY = {
    "global_batch_size": 10,
    "log.every": "1",
    "eval.every": "2",
    "checkpoint.every": "0",
    # Of Adam: gradients that are 0 but for rounding stay small.
    "optimizer.epsilon": 1e-2,
}
CORPUS = EVERY | {
    "data.line_format": "sentences",
    "data.validation_share": 0.1,
    "data.num_processes": 1,
    "eval.max_batches": 2,
    "steps": 6,
    "phases": ((16, 0.5), (24, 0.5, 7)),
}
# Whose number of rows depends on the lengths.
BY_TOKENS = {"data.batch_by": "tokens", "data.bucket_lengths": (6, 12)}
LABELLED = {
    "tagging": ("tagging", BY_TOKENS),
    "packed": ("tagging", {"data.max_examples_per_row": 3}),
    "crf": CHANGES["crf"],
    "classification": ("classification", {}),
    "multi_label": CHANGES["multi_label"],
    "regression": CHANGES["regression"],
    "windows": CHANGES["windows"],
    "head_losses": (
        "classification",
        {"task.layers": "scalar_mix", "task.pooler": False, "task.mix_l2": 0.1},
    ),
    "span": CHANGES["span"],
    "multiple_choice": CHANGES["multiple_choice"],
    "embedding": CHANGES["embedding"],
    "embedding_pairs": (
        "embedding",
        {"task.text_a": "sentence1", "task.text_b": "sentence2", "task.label": ""},
    ),
    "splade": ("splade", {"task.text_a": "sentence1", "task.text_b": "sentence2"}),
    "colbert": (
        "colbert",
        {"task.text_a": "sentence1", "task.text_b": "sentence2", "task.features": 8},
    ),
    "cross_encoder": (
        "cross_encoder",
        {"task.text_a": "sentence1", "task.text_b": "sentence2", "data.max_examples_per_row": 3},
    ),
}
# Rows of several examples, losses that relate examples, and phases stand for the others.
DEFAULT = ("packed", "embedding", "pretraining")
PRETRAINING = {
    "pretraining": (tiny_bert, {"data.max_examples_per_row": 3}),
    "causal_lm": (left_to_right, {}),
    "bidirectional_lm": (elmo, ELMO),
}


@contextlib.contextmanager
def devices(count):
    """Runs that are opened here have the first devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "make_checked_mesh", lambda config: tiny.make_mesh(count))
        yield


@pytest.fixture(scope="module")
def make_config(new_run, tmp_path_factory):
    """Returns the function name -> configuration of a run of few steps."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "corpus.txt", documents=60)

    def make(name):
        if name in LABELLED:
            task, changes = LABELLED[name]
            few = {"epochs": 0.5, "microbatch_size": 0}
            return new_run(task, changes | EVERY | few).config
        module, changes = PRETRAINING[name]
        config = parse(module.get_config("small") if module is elmo else module.get_config())
        sizes = tiny.make_overrides(model__num_layers=1, model__vocab_size=96)
        source = {"data.source": f"text:{folder}/corpus.txt", "data.dir": str(folder / name)}
        return config.replace((changes if module is elmo else sizes | changes) | CORPUS | source)

    return make


def assert_same(workdir, other):
    """Reports of all steps and evaluations, and the last states, are equal up to rounding."""
    rows, others = metrics_of(workdir), metrics_of(other)
    assert [(row["step"], row["split"]) for row in rows] == [
        (row["step"], row["split"]) for row in others
    ]
    for row, expected in zip(rows, others, strict=True):
        assert row.keys() == expected.keys()
        for name in row.keys() - {"split"}:
            np.testing.assert_allclose(
                row[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{name} {row['step']}"
            )
    folders = [f"{folder}/checkpoints/{newest_step(folder)}" for folder in (workdir, other)]
    arrays, expected = map(arrays_of, folders)
    assert arrays.keys() == expected.keys()
    for path, array in expected.items():
        assert array.dtype == arrays[path].dtype
        np.testing.assert_allclose(arrays[path], array, rtol=1e-3, atol=1e-5, err_msg=path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in DEFAULT else pytest.mark.slow)
        for name in (*LABELLED, *PRETRAINING)
    ],
)
def test_devices_and_microbatches_change_nothing(name, make_config, tmp_path):
    config = make_config(name)
    with devices(1):
        train(config, str(tmp_path / "one"))
    with devices(2):
        train_until(3, config.replace({"microbatch_size": 4}), tmp_path / "others")
    with devices(8):
        train(config.replace({"microbatch_size": 7}), str(tmp_path / "others"))
    assert_same(tmp_path / "others", tmp_path / "one")
