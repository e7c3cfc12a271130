"""The parameters that a run starts from: what is taken over, what is new, what does not fit."""

import dataclasses
import functools
import json
import shutil
from typing import Any

import jax
import numpy as np
import optax
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.config.task import default_config
from bert_jax.data.init_from import resolve
from bert_jax.devices.sharding import make_mesh
from bert_jax.devices.trees import flatten
from bert_jax.exchange import export
from bert_jax.files.errors import UserError
from bert_jax.formats.safetensors_file import read_safetensors, write_safetensors
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.tagging import Tagging
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.initial import initial_params
from bert_jax.training.state import (
    abstract_params,
    init_params,
    init_some,
    init_state,
    make_key,
)
from bert_jax.training.train import train
from bert_jax.training.workdir import open_workdir
from tests.tiny import PRNG_IMPL, make_task
from tests.tools.convert.conftest import VOCABULARY

TABLE = "bert/embeddings/word_embeddings/embedding"
CLASSIFIER = {"classifier__kernel": (16, 3), "classifier__bias": (3,)}


def pretraining_heads(model):
    """The task whose model has the heads of pre-training, as an imported one has them."""
    if model.lm_head == "tied":
        return CausalLM(model=model)
    return Pretraining(model=model, next_sentence=model.next_sentence)


def start(workdir, config=None, task=None, labels=None, **options):
    """Returns the initial parameters by path, their shardings, random ones, and the lines."""
    config = config or store.load(str(workdir))
    task = task or pretraining_heads(config.model)
    like, rng = abstract_params(task, make_mesh()), np.random.default_rng(1)
    random_ones = {path: rng.random(leaf.shape, np.float32) for path, leaf in flatten(like).items()}
    params, lines = initial_params(
        str(workdir),
        like,
        lambda paths: {path: random_ones[path] for path in paths},
        encoder=config.model.name,
        vocab_size=config.model.vocab_size,
        task="tagging" if isinstance(task, Tagging) else "classification",
        labels=labels,
        **options,
    )
    shardings = {path: leaf.sharding for path, leaf in flatten(like).items()}
    return flatten(params), shardings, random_ones, lines


def test_initial_params_of_a_run_bit_for_bit(make_workdir, random_params):
    workdir = make_workdir()
    params, shardings, _, lines = start(workdir)
    expected = random_params(store.load(str(workdir)))
    assert params.keys() == expected.keys()
    for name, array in params.items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.sharding == shardings[name]
    assert lines == (f"from the parameters of {workdir}, step 7",)


def test_some_layers_of_a_larger_model(make_workdir, random_params):
    config = store.load(str(workdir := make_workdir(model__num_layers=3)))
    expected = random_params(config)
    params, *_, lines = start(workdir, config.replace({"model.num_layers": 2}), layers=(1, 3))
    assert lines == (f"from the parameters of {workdir}, step 7, layers 1, 3",)
    taken = {path.replace("layer_1", "layer_2"): array for path, array in params.items()}
    assert taken.keys() == {path for path in expected if "layer_1" not in path}
    for path, array in taken.items():
        np.testing.assert_array_equal(array, expected[path])

    changes = {"init_from": str(workdir), "phases": ((16, 1.0),)}
    values = default_config("pretraining").replace(changes).to_dict()
    resolved = resolve({**values, "init_layers": (1, 3)}, ())
    assert resolved.model.num_layers == 2
    for changes, message in (
        ({"init_layers": (1, 4)}, "has 3 layers"),
        ({"init_layers": (0,)}, "are not layer numbers"),
        ({"init_from": "", "init_layers": (1, 3)}, "has no effect without config.init_from"),
    ):
        with pytest.raises(ValueError, match=message):
            resolve(values | changes, ())
    windows = {"model__attention_pattern": "window", "model__attention_window": 4}
    shutil.rmtree(workdir)
    make_workdir(model__num_layers=4, **windows, model__global_every=3)
    assert resolve(values | {"init_layers": (1, 3)}, ()).model.num_layers == 2
    with pytest.raises(ValueError, match="layer 4 of .* would have another window: layers 1, 4, "):
        resolve(values | {"init_layers": (1, 4)}, ())


def test_heads_that_an_import_initialized_are_new_and_reported(make_workdir):
    workdir, path = make_workdir(), "masked_lm/transform/kernel"
    names = [name for name in start(workdir)[0] if name.startswith("masked_lm/")]
    (workdir / "certificate.json").write_text(json.dumps({"tensors": {"fresh": names}}))
    params, _, random_ones, lines = start(workdir)
    assert lines[1:] == ("with new, random ones for masked_lm",)
    np.testing.assert_array_equal(params[path], random_ones[path])


def test_heads_of_another_task_are_new_and_reported(make_workdir):
    """Of other classes, and of other kinds."""
    workdir = make_workdir(heads=CLASSIFIER, task="classification")
    task = Classification(model=store.load(str(workdir)).model, labels=("a", "b"))
    params, _, random_ones, lines = start(workdir, task=task)
    assert "with new, random ones for classifier" in lines
    np.testing.assert_array_equal(params["classifier/kernel"], random_ones["classifier/kernel"])

    params, _, random_ones, lines = start(workdir)
    assert params.keys() == random_ones.keys()
    path = "masked_lm/transform/kernel"
    np.testing.assert_array_equal(params[path], random_ones[path])
    assert lines[1:] == (
        "with new, random ones for masked_lm, next_sentence",
        "without classifier",
    )


@pytest.mark.parametrize(
    ("there", "here", "order", "line"),
    [
        (
            "b a c",
            "a b c",
            [1, 0, 2],
            "its head's rows in the order of the labels (there: b, a, c)",
        ),
        ("a b c", "a b c", [0, 1, 2], ""),
        ("a b c", "b c d", None, "its head, whose labels are a, b, c, is not used"),
        ("a a b", "a a b", None, "its head, whose labels are a, a, b, is not used"),
        ("", "a b c", None, "its head, whose labels are no names, is not used"),
    ],
)
def test_rows_of_a_head_follow_the_labels(make_workdir, there, here, order, line):
    """Those of a CRF; of other labels the head is new, though its shape is the same."""
    crf = {"transitions": (3, 3), "start_transitions": (3,), "end_transitions": (3,)}
    workdir = make_workdir(heads=CLASSIFIER | crf, task="tagging")
    (workdir / "labels.json").write_text(json.dumps(there.split()))
    before = open_workdir(str(workdir)).params
    config = store.load(str(workdir))
    task = config.replace({"task.head": "crf"}).task
    tokenizer: Any = None
    task = dataclasses.replace(task, labels=tuple(here.split())).bind(config.model, tokenizer)
    params, _, random_ones, lines = start(workdir, task=task, labels=here.split())
    for path in [*(name.replace("__", "/") for name in CLASSIFIER), *crf]:
        expected = random_ones[path]
        if order:
            expected = before[path][..., order]
            expected = expected[order] if path == "transitions" else expected
        np.testing.assert_array_equal(params[path], expected)
    assert [text for text in lines if text.startswith("its head")] == ([line] if line else [])


def test_the_head_of_another_task_is_not_used(make_workdir):
    """That of a tagger has the shape of a classifier's."""
    workdir = make_workdir(heads=CLASSIFIER, task="tagging")
    (workdir / "labels.json").write_text('["a", "b", "c"]')
    task = Classification(model=store.load(str(workdir)).model, labels=("a", "b", "c"))
    params, _, random_ones, lines = start(workdir, task=task, labels=["a", "b", "c"])
    path = "classifier/kernel"
    np.testing.assert_array_equal(params[path], random_ones[path])
    assert lines[1] == "its head for the task 'tagging' is not used"


def test_without_next_sentence_the_pooler_is_left_out(make_workdir):
    config = store.load(str(workdir := make_workdir())).replace({"model.next_sentence": False})
    params, *_, lines = start(workdir, config)
    assert not any("pooler" in path for path in params)
    assert lines[1:] == ("without bert/pooler, next_sentence",)


def test_a_table_is_padded(make_workdir, random_params):
    """As tensor parallelism needs it; the rows that are added mean nothing."""
    workdir = make_workdir(model__vocab_size=60)
    config = store.load(str(workdir))
    expected = random_params(config)[TABLE]
    config = config.replace({"model.pad_vocab_to_multiple_of": 32})
    params, *_ = start(workdir, config)
    np.testing.assert_array_equal(params[TABLE], np.concatenate([expected, np.zeros((4, 16))]))
    assert params["masked_lm/bias"].shape == (64,)
    with pytest.raises(ValueError, match=rf"- {TABLE}: \[60, 16\]"):
        start(workdir, config.replace({"model.vocab_size": 64}))


@pytest.mark.parametrize("rows", [41, 100])
def test_a_table_of_positions_is_extended(make_workdir, random_params, rows):
    workdir = make_workdir()
    config = store.load(str(workdir))
    path = "bert/embeddings/position_embeddings/embedding"
    old = random_params(config)[path]
    assert len(old) == 40
    longer = config.replace({"model.max_position_embeddings": rows})
    params, *_, lines = start(workdir, longer, extend_positions="tile")
    np.testing.assert_array_equal(params[path], np.concatenate([old, old, old])[:rows])
    assert lines[1:] == (f"with 40 positions repeated to {rows}",)
    params, *_, lines = start(workdir, longer, extend_positions="interpolate")
    places = np.linspace(0, 39, rows)
    expected = [np.interp(places, np.arange(40), column) for column in old.T]
    np.testing.assert_allclose(params[path], np.stack(expected, axis=1), atol=1e-6)
    assert lines[1:] == (f"with 40 positions interpolated to {rows}",)
    params, *_, lines = start(workdir, config, extend_positions="tile")
    np.testing.assert_array_equal(params[path], old)
    assert len(lines) == 1
    with pytest.raises(
        ValueError, match=rf"embeddings={rows} is above the 40 learned positions of"
    ):
        start(workdir, longer)


def test_rotary_positions_need_no_extension(make_workdir):
    workdir = make_workdir(model__positions="rotary")
    longer = store.load(str(workdir)).replace({"model.max_position_embeddings": 64})
    params, *_, lines = start(workdir, longer)
    assert not any("position_embeddings" in path for path in params) and len(lines) == 1


def test_some_parameters_are_those_that_all_have():
    task, key = make_task(num_layers=1), make_key(5, "init")
    everything = flatten(jax.jit(functools.partial(init_params, task))(key))
    paths = ["masked_lm/transform/kernel", "bert/pooler/kernel"]
    some = init_some(task, make_mesh(), key, paths)
    assert sorted(some) == sorted(paths)
    for path in paths:
        np.testing.assert_array_equal(some[path], everything[path])


# ------------------------------------------------------------------ whole runs


@pytest.fixture
def theirs(make_workdir, tmp_path):
    """A folder in the form of transformers."""
    workdir = make_workdir(VOCABULARY, model__vocab_size=57, model__num_layers=1)
    export(open_workdir(str(workdir)), "huggingface", tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def short_run(theirs, tmp_path):
    """A configuration of two steps of pre-training on a few words."""
    words = "the quick fox jumps".split()
    text = "\n".join(" ".join(words[i % 4 :]) for i in range(12))
    for letter in "abc":
        (tmp_path / f"text-{letter}.txt").write_text(f"{text}\n{letter} dog")
    changes = {
        "init_from": str(theirs),
        "prng_impl": PRNG_IMPL,
        "phases": ((16, 1.0),),
        "steps": 2,
        "global_batch_size": 8,
        "data.source": f"text:{tmp_path}/text-*.txt",
        "data.document_separator": "file",
        "data.num_processes": 1,
        "data.validation_share": 0.0,
        "optimizer.warmup": "1",
        "checkpoint.keep_best": 0,
    }
    config = default_config("pretraining").replace(changes)
    return resolve(config.to_dict(), (), str(tmp_path / "new"))


def test_pretraining_starts_from_a_foreign_folder_and_resumes_without_it(
    short_run, theirs, tmp_path, capsys
):
    vocabulary = shutil.copy(short_run.data.vocab, tmp_path / "vocab.txt")
    short_run = short_run.replace({"data.vocab": str(vocabulary)})
    train(short_run, str(tmp_path / "new"), listener=training_listener())
    printed = capsys.readouterr().out
    assert f"start      from the parameters of {theirs} (Hugging Face)" in printed
    shutil.rmtree(theirs)
    result = train(short_run, str(tmp_path / "new"))
    assert int(result.state.step) == 2 and not result.stopped_by


def replace_tensor(folder, name, array=None):
    """Replaces a tensor of a folder of transformers, or drops it."""
    path = folder / "model.safetensors"
    arrays = {name: np.array(array) for name, array in read_safetensors(str(path)).items()}
    del arrays[name]
    write_safetensors(path, arrays if array is None else arrays | {name: array})


NAN = np.full(16, np.nan, np.float32)


@pytest.mark.parametrize(
    "array, message",
    [(None, r"\+ bert.pooler.dense.bias"), (NAN, "has 16 NaN")],
)
def test_a_corrupt_folder_is_refused_before_data_are_prepared(
    short_run, theirs, tmp_path, array, message
):
    replace_tensor(theirs, "bert.pooler.dense.bias", array)
    with pytest.raises(ValueError, match=message):
        train(short_run, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "field, message",
    [("max_position_embeddings", "extend_positions=tile"), ("intermediate_size", "do not fit")],
)
def test_a_model_that_does_not_fit_is_refused_before_data_are_prepared(
    short_run, tmp_path, field, message
):
    with pytest.raises(ValueError, match=message):
        train(short_run.replace({f"model.{field}": 64}), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_imported_parameters_cannot_be_resumed(short_run, theirs, tmp_path):
    run_command(["convert", "from_hf", str(theirs), str(tmp_path / "out"), "--nocomparison"])
    with pytest.raises(ValueError, match="holds imported parameters, not a run: start one from"):
        train(short_run, str(tmp_path / "out"))


def test_given_rows_replace_the_random_ones_of_a_table():
    rows = np.zeros((64, 16), np.float32)
    rows[5:40] = np.random.default_rng(0).normal(0, 7, (35, 16))
    task, key = make_task(), make_key(0, "init")
    random, found = (
        flatten(init_state(task, optax.sgd(1.0), make_mesh(), key, embeddings=embeddings).params)
        for embeddings in ({}, {TABLE: jax.numpy.asarray(rows)})
    )
    scale = np.sqrt(np.square(random[TABLE]).mean() / np.square(rows[5:40]).mean())
    np.testing.assert_allclose(found[TABLE][5:40], scale * rows[5:40], rtol=1e-5)
    for path, values in random.items():
        unchanged = np.r_[0:5, 40:64] if path == TABLE else slice(None)
        np.testing.assert_allclose(found[path][unchanged], values[unchanged], atol=1e-7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"init_from": "x"}, "config.init_from has embeddings"),
        ({"data": {"mode": "static"}}, "needs unmasked text, and config.data.mode='static'"),
        (
            {"data": {"segments": "stream"}},
            "not for the characters of config.data.segments='stream'",
        ),
    ],
)
def test_where_spectral_embeddings_are_refused(values, message):
    config = default_config("pretraining").to_dict() | {"init_embeddings": "spectral"}
    config["model"]["next_sentence"] = False
    config["data"] |= values.pop("data", {})
    with pytest.raises(UserError, match=message):
        store.parse(config | values)
