"""The parameters that a run starts from: what is taken over, what is new, what does not fit."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.data.init_from import resolve
from bert_jax.devices.sharding import make_mesh
from bert_jax.devices.trees import flatten
from bert_jax.formats.safetensors_file import read_safetensors, write_safetensors
from bert_jax.tasks.classification import Classification
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.initial import initial_params, make_pretraining
from bert_jax.training.state import abstract_params, init_params, init_some, make_key
from bert_jax.training.train import train
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import new_config

TEXT = "\n".join(" ".join("the quick fox jumps".split()[i % 4 :]) for i in range(12))


def like_of(config):
    task = make_pretraining(config.model, config.model.next_sentence)
    mesh = make_mesh()
    params = abstract_params(task, mesh)
    return params, new_params(task), config.model.vocab_size


def new_params(task):
    """Random parameters by path, drawn with all others."""
    params = flatten(init_params(task, make_key(5, "init")))
    return lambda paths: {path: params[path] for path in paths}


def initial_params_of(workdir, config):
    like, make_new, vocab_size = like_of(config)
    return initial_params(str(workdir), like, make_new, encoder="bert", vocab_size=vocab_size)


def test_initial_params_of_a_run_bit_for_bit(make_workdir, random_params):
    workdir = make_workdir()
    config = store.load(str(workdir))
    like, make_new, vocab_size = like_of(config)
    params, lines = initial_params(
        str(workdir), like, make_new, encoder="bert", vocab_size=vocab_size
    )
    expected = random_params(config)
    for name, array in flatten(params).items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.sharding == flatten(like)[name].sharding
    assert lines == (f"from the parameters of {workdir}, step 7",)


def test_heads_that_an_import_initialized_are_new_and_reported(make_workdir):
    workdir = make_workdir()
    like, make_new, vocab_size = like_of(store.load(str(workdir)))
    names = [name for name in flatten(like) if name.startswith("masked_lm/")]
    (workdir / "certificate.json").write_text(json.dumps({"tensors": {"fresh": names}}))
    params, lines = initial_params(
        str(workdir), like, make_new, encoder="bert", vocab_size=vocab_size
    )
    assert lines[1:] == ("with new, random ones for masked_lm",)
    kernel = params["masked_lm"]["transform"]["kernel"]
    path = "masked_lm/transform/kernel"
    np.testing.assert_array_equal(kernel, make_new([path])[path])


def test_some_parameters_are_those_that_all_have(make_workdir):
    task = make_pretraining(store.load(str(make_workdir())).model, True)
    make_all = jax.jit(functools.partial(init_params, task))
    everything = flatten(make_all(make_key(5, "init")))
    paths = ["masked_lm/transform/kernel", "bert/pooler/kernel"]
    some = init_some(task, make_mesh(), make_key(5, "init"), paths)
    assert sorted(some) == sorted(paths)
    for path in paths:
        np.testing.assert_array_equal(some[path], everything[path])


def test_a_head_of_other_classes_is_new_and_reported(make_workdir):
    workdir = make_workdir(
        heads={"classifier__kernel": (16, 3), "classifier__bias": (3,)}, task="classification"
    )
    model = store.load(str(workdir)).model
    task = Classification(model, "single", 2)
    like = abstract_params(task, make_mesh())
    make_new = new_params(task)
    params, lines = initial_params(
        str(workdir), like, make_new, encoder="bert", vocab_size=model.vocab_size
    )
    assert "with new, random ones for classifier" in lines
    assert params["classifier"]["kernel"].shape == (16, 2)


def test_heads_that_the_source_lacks_are_new_and_reported(make_workdir):
    workdir = make_workdir(
        heads={"classifier__kernel": (16, 3), "classifier__bias": (3,)}, task="classification"
    )
    like, make_new, vocab_size = like_of(store.load(str(workdir)))
    params, lines = initial_params(
        str(workdir), like, make_new, encoder="bert", vocab_size=vocab_size
    )
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, like)
    path = "masked_lm/transform/kernel"
    np.testing.assert_array_equal(
        params["masked_lm"]["transform"]["kernel"], make_new([path])[path]
    )
    assert lines[1:] == (
        "with new, random ones for masked_lm, next_sentence",
        "without classifier",
    )


def test_without_next_sentence_the_pooler_is_left_out(make_workdir):
    workdir = make_workdir()
    config = store.load(str(workdir))
    config = config.replace({"model.next_sentence": False})
    params, lines = initial_params_of(workdir, config)
    assert "pooler" not in params["bert"]
    assert lines[1:] == ("without bert/pooler, next_sentence",)


def test_a_table_is_padded(make_workdir, random_params):
    """As tensor parallelism needs it; the rows that are added mean nothing."""
    workdir = make_workdir(model__vocab_size=60)
    config = store.load(str(workdir))
    expected = random_params(config)["bert/embeddings/word_embeddings/embedding"]
    config = config.replace({"model.pad_vocab_to_multiple_of": 32})
    params, _ = initial_params_of(workdir, config)
    table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_array_equal(table, np.concatenate([expected, np.zeros((4, 16))]))
    assert params["masked_lm"]["bias"].shape == (64,)
    config = config.replace({"model.vocab_size": 64})
    with pytest.raises(
        ValueError, match=r"- bert/embeddings/word_embeddings/embedding: \[60, 16\]"
    ):
        initial_params_of(workdir, config)


def test_an_encoder_of_another_size_is_refused(make_workdir):
    workdir = make_workdir()
    config = store.load(str(workdir))
    config = config.replace({"model.num_layers": 3})
    with pytest.raises(ValueError, match=r"do not fit.*\+ bert/encoder/layer_2/.*; and 4 more"):
        initial_params_of(workdir, config)


@pytest.fixture
def short_run(theirs, tmp_path):
    """Settings of two steps of pre-training on a few words, from the source on."""
    for i in range(3):
        (tmp_path / f"text{i}.txt").write_text(TEXT + f"\n{'abc'[i]} dog")
    config = new_config(theirs, steps=2, global_batch_size=8, data__num_processes=1)
    config = config.replace(
        {"data.source": f"text:{tmp_path}/text*.txt", "data.document_separator": "file"}
    )
    config = config.replace(
        {"data.validation_share": 0.0, "optimizer.warmup": "1", "checkpoint.keep_best": 0}
    )
    return config


@pytest.mark.slow
def test_pretraining_starts_from_a_foreign_folder(short_run, theirs, tmp_path, capsys):
    short_run = resolve(short_run.to_dict(), (), str(tmp_path / "new"))
    result = train(short_run, str(tmp_path / "new"), listener=training_listener())
    state = result.state
    assert int(state.step) == 2
    printed = capsys.readouterr().out
    assert f"start      from the parameters of {theirs} (Hugging Face)" in printed
    assert "2 layers, hidden 16, 2 heads, gelu" in printed


def replace_tensor(folder, name, array=None):
    """Replaces a tensor of a folder of transformers, or drops it."""
    path = folder / "model.safetensors"
    arrays = {name: np.array(array) for name, array in read_safetensors(str(path)).items()}
    del arrays[name]
    write_safetensors(path, arrays if array is None else arrays | {name: array})


NAN = np.full(16, np.nan, np.float32)


@pytest.mark.parametrize(
    "array, message",
    [(None, r"\+ bert.pooler.dense.bias: \[16\]"), (NAN, "bert.pooler.dense.bias has 16 NaN or")],
)
def test_a_corrupt_folder_is_refused_before_data_are_prepared(
    short_run, theirs, tmp_path, array, message
):
    short_run = resolve(short_run.to_dict(), (), str(tmp_path / "new"))
    replace_tensor(theirs, "bert.pooler.dense.bias", array)
    with pytest.raises(ValueError, match=message):
        train(short_run, str(tmp_path / "new"), listener=training_listener())
    assert not (tmp_path / "new").exists()


def test_an_encoder_that_does_not_fit_is_refused_before_data_are_prepared(
    short_run, make_workdir, tmp_path
):
    short_run = short_run.replace({"init_from": str(make_workdir(vocabulary=VOCABULARY))})
    short_run = resolve(short_run.to_dict(), (), str(tmp_path / "new"))
    short_run = short_run.replace({"model.intermediate_size": 64})
    with pytest.raises(ValueError, match=r"do not fit.*intermediate/kernel"):
        train(short_run, str(tmp_path / "new"), listener=training_listener())
    assert not (tmp_path / "new").exists()


def test_a_run_resumes_without_its_source(short_run, theirs, tmp_path):
    short_run = resolve(short_run.to_dict(), (), str(tmp_path / "new"))
    vocabulary = shutil.copy(short_run.data.vocab, tmp_path / "vocab.txt")
    short_run = short_run.replace({"data.vocab": str(vocabulary)})
    train(short_run, str(tmp_path / "new"), listener=training_listener())
    shutil.rmtree(theirs)
    result = train(short_run, str(tmp_path / "new"), listener=training_listener())
    state, is_complete = result.state, result.is_complete
    assert int(state.step) == 2 and is_complete


def test_imported_parameters_cannot_be_resumed(short_run, theirs, tmp_path):
    from bert_jax.tools.cli import convert

    convert.main(["convert", "from_hf", str(theirs), str(tmp_path / "out"), "--nocomparison"])
    with pytest.raises(ValueError, match="holds imported parameters, not a run: start one from"):
        train(short_run, str(tmp_path / "out"), listener=training_listener())
