"""Packed rows of labelled examples: the same losses, accuracies and gradients as one by one."""

import functools
import importlib
import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config.store import parse
from bert_jax.data.labelled.batching import PackedLoader
from bert_jax.training.open import open_run
from bert_jax.training.state import TrainState, init_params
from bert_jax.training.step import train_step
from tests import tiny
from tests.training import labelled_files
from tests.training.labelled_files import VOCABULARY

LENGTH, NUM_EXAMPLES = 32, 40
WRITERS = {
    "classification": (labelled_files.write_texts, ".tsv"),
    "tagging": (labelled_files.write_words, ".conll"),
    "span": (labelled_files.write_questions, ".json"),
    "multiple_choice": (labelled_files.write_choices, ".csv"),
}


CASES = {
    "classes": ("classification", {"task.class_weights": "auto", "task.label_smoothing": 0.1}),
    "numbers, mean": (
        "classification",
        {
            "task.problem_type": "regression",
            "task.pool": "mean",
            "task.pooler": False,
            "task.label": "number",
            "metrics": ("pearson",),
            "checkpoint.best_metric": "pearson",
        },
    ),
    "tags of all pieces": ("tagging", {"task.subwords": "mean", "task.focal_gamma": 2.0}),
    "answers": ("span", {"task.null_answers": True, "task.doc_stride": 8}),
}


@pytest.fixture
def make_config(tmp_path):
    """Returns a function (task, changes) -> configuration on a file of the task."""

    def make(task, changes):
        write, suffix = WRITERS[task]
        path = tmp_path / f"examples{suffix}"
        write(path, random.Random(0), NUM_EXAMPLES)
        (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        values = tiny.make_overrides(
            model__vocab_size=len(VOCABULARY),
            model__num_layers=1,
            model__initializer_range=0.1,
            model__dropout_rate=0.0,
            model__attention_dropout_rate=0.0,
            max_length=LENGTH,
            global_batch_size=8,
            data__bucket_lengths=(LENGTH,),
            data__train=str(path),
            data__eval=str(path),
            data__vocab=str(tmp_path / "vocab.txt"),
        )
        config = parse(importlib.import_module(f"configs.{task}").get_config())
        return config.replace(values | changes)

    return make


def sums_and_gradient(task, params, batch):
    """An optimizer that keeps the gradient and changes nothing."""
    tx = optax.chain(optax.trace(decay=0.0), optax.scale(0.0))
    keys = dict.fromkeys(("dropout", "masking"), jax.random.key(0))
    step = jax.jit(functools.partial(train_step, task=task, tx=tx))
    zero = jnp.zeros((), jnp.int32)
    state, metrics = step(TrainState(zero, params, tx.init(params), zero), batch, keys)
    return metrics.sums, state.opt_state[0].trace


@pytest.mark.parametrize("name", CASES)
def test_losses_accuracies_and_gradients_are_those_of_single_rows(make_config, tmp_path, name):
    run = open_run(make_config(*CASES[name]), str(tmp_path / "run"))
    task, rows = run.task_at(run.phases[0]), run.training[0].rows
    params = init_params(task, jax.random.key(1))
    loader = PackedLoader(rows.lengths, rows.num_rows, 0, LENGTH, max_examples=4)
    numbers, _ = loader.batch(0)
    assert loader.rows < rows.num_rows and (numbers[:, 1] >= 0).any()
    packed, gradient = sums_and_gradient(task, params, rows.take(numbers, LENGTH))
    alone = rows.take(np.arange(rows.num_rows), LENGTH)
    sums, expected = sums_and_gradient(task, params, alone)
    assert packed.keys() == sums.keys()
    for key, value in sums.items():
        assert packed[key].denominator == value.denominator > 0
        np.testing.assert_allclose(packed[key].numerator, value.numerator, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), gradient, expected)


@pytest.mark.parametrize(
    "task, changes", [("multiple_choice", {}), ("tagging", {"task.head": "crf"})]
)
def test_what_would_mix_examples_is_refused(make_config, tmp_path, task, changes):
    config = make_config(task, changes | {"data.max_examples_per_row": 2})
    with pytest.raises(
        ValueError, match="config.data.max_examples_per_row=2: this head or these losses would mix"
    ):
        open_run(config, str(tmp_path / "run"))
