"""What parameters come from decides sizes and vocabulary, but not what the user says."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from bert_jax.config import settings as config_lib
from bert_jax.convert.parameters import initial_params
from bert_jax.corpus.manifest import Manifest
from bert_jax.corpus.prepare import prepare
from bert_jax.devices.sharding import make_mesh
from bert_jax.formats.safetensors_file import read_safetensors, write_safetensors
from bert_jax.formats.source import adopt, kind_of
from bert_jax.formats.tables import flatten
from bert_jax.tasks import Pretraining
from bert_jax.tasks.classification import Classification
from bert_jax.training.experiment import make_model_config
from bert_jax.training.state import abstract_params, init_params, make_key
from bert_jax.training.train import train
from configs import base
from tests.convert.conftest import SIZES, VOCABULARY

TEXT = "\n".join(" ".join("the quick fox jumps".split()[i % 4 :]) for i in range(12))


@pytest.fixture
def theirs(tmp_path):
    """A folder of transformers with the heads of pre-training."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=len(VOCABULARY.split("\n")),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    folder = tmp_path / "theirs"
    transformers.BertForPreTraining(transformers.BertConfig(**sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text(VOCABULARY)
    return folder


def new_config(init_from: pathlib.Path, **changes):
    config = base.get_config()
    config.init_from = str(init_from)
    config.phases = ((16, 1.0),)
    config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return config


def test_a_run_decides(make_workdir):
    workdir = make_workdir(model__activation="gelu", data__lowercase=False, model__dropout_rate=0.3)
    config = new_config(workdir)
    adopt(config, frozenset(), "")
    assert {name: config.model[name] for name in SIZES} == SIZES
    assert config.model.activation == "gelu"
    assert config.data.vocab == str(workdir / "vocab.txt")
    assert config.data.lowercase is False
    assert config.model.dropout_rate == 0.1  # of the training, not of the parameters


def test_a_folder_of_another_program_decides(theirs, shared_data):
    config = new_config(theirs)
    adopt(config, frozenset(), "")
    assert config.model.hidden_size == 16 and config.model.activation == "gelu"
    assert config.data.vocab == str(theirs / "vocab.txt")
    config = new_config(shared_data / "checkpoints/keras_bert_tiny_tf")
    adopt(config, frozenset(), "")
    assert config.model.hidden_size == 4 and config.model.activation == "gelu_tanh"


def test_what_the_user_says_stays(theirs):
    config = new_config(theirs, model__activation="gelu_tanh", data__lowercase=False)
    adopt(config, frozenset({"model.activation", "data.lowercase"}), "")
    assert config.model.activation == "gelu_tanh"
    assert config.data.lowercase is False


def test_no_source_decides_nothing():
    config = base.get_config()
    adopt(config, frozenset(), "")
    assert config == base.get_config()


@pytest.mark.parametrize("vocab", ["train:wordpiece", "other.txt"])
def test_another_vocabulary_is_refused(theirs, tmp_path, vocab):
    (tmp_path / "other.txt").write_text(VOCABULARY.replace("q", "Q"))
    vocab = vocab if ":" in vocab else str(tmp_path / vocab)
    config = new_config(theirs, data__vocab=vocab)
    with pytest.raises(ValueError, match="is not the vocabulary .*ids would mean other words"):
        adopt(config, frozenset({"data.vocab"}), "")


def test_the_same_vocabulary_elsewhere_is_taken(theirs, tmp_path):
    vocab = str(shutil.copy(theirs / "vocab.txt", tmp_path / "copy.txt"))
    config = new_config(theirs, data__vocab=vocab)
    adopt(config, frozenset({"data.vocab"}), "")
    assert config.data.vocab == vocab


def test_a_vocabulary_in_tokenizer_json_only(theirs):
    ids = {piece: i for i, piece in enumerate(VOCABULARY.split("\n"))}
    (theirs / "vocab.txt").unlink()
    (theirs / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "WordPiece", "vocab": ids}})
    )
    with pytest.raises(ValueError, match="in tokenizer.json only: import it with"):
        adopt(new_config(theirs), frozenset(), "")


def test_a_run_that_has_begun_needs_its_source_no_more(theirs, tmp_path):
    config = new_config(theirs)
    adopt(config, frozenset(), "")
    begun = tmp_path / "begun"
    begun.mkdir()
    config_lib.save(config, str(begun))
    shutil.rmtree(theirs)
    again = new_config(theirs)
    adopt(again, frozenset(), str(begun))
    assert again.to_dict() == config_lib.load(str(begun)).to_dict()
    with pytest.raises(ValueError, match="there is no such file or folder"):
        adopt(new_config(theirs), frozenset(), "")


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_no_source(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no such file|neither a workdir"):
        kind_of(str(tmp_path / name))


def like_of(config):
    task = Pretraining(make_model_config(config), None, 8, max_predictions_per_seq=1)
    mesh = make_mesh()
    params = abstract_params(task, mesh)
    return params, lambda: init_params(task, make_key(5, "init")), config.model.vocab_size


def test_initial_params_of_a_run_bit_for_bit(make_workdir, random_params):
    workdir = make_workdir()
    config = config_lib.load(str(workdir))
    like, make_new, vocab_size = like_of(config)
    params, lines = initial_params(str(workdir), like, make_new, vocab_size)
    expected = random_params(config)
    for name, array in flatten(params).items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.sharding == flatten(like)[name].sharding
    assert lines == (f"from the parameters of {workdir}, step 7",)


def test_heads_that_an_import_made_up_are_made_anew_and_said(make_workdir):
    workdir = make_workdir()
    like, make_new, vocab_size = like_of(config_lib.load(str(workdir)))
    names = [name for name in flatten(like) if name.startswith("masked_lm/")]
    (workdir / "certificate.json").write_text(json.dumps({"tensors": {"fresh": names}}))
    params, lines = initial_params(str(workdir), like, make_new, vocab_size)
    assert lines[1:] == ("with new, random ones for masked_lm",)
    kernel = params["masked_lm"]["transform"]["kernel"]
    np.testing.assert_array_equal(kernel, make_new()["masked_lm"]["transform"]["kernel"])


def test_a_head_of_other_classes_is_new_and_said(make_workdir):
    workdir = make_workdir(
        heads={"classifier__kernel": (16, 3), "classifier__bias": (3,)}, task="classification"
    )
    model = make_model_config(config_lib.load(str(workdir)))
    task = Classification(model, "single", 2)
    params = abstract_params(task, make_mesh())
    make_new = lambda: init_params(task, make_key(5, "init"))  # noqa: E731
    found, lines = initial_params(str(workdir), params, make_new, model.vocab_size)
    assert "with new, random ones for classifier" in lines
    assert found["classifier"]["kernel"].shape == (16, 2)


def test_heads_that_the_source_lacks_are_new_and_said(make_workdir):
    workdir = make_workdir(
        heads={"classifier__kernel": (16, 3), "classifier__bias": (3,)}, task="classification"
    )
    like, make_new, vocab_size = like_of(config_lib.load(str(workdir)))
    params, lines = initial_params(str(workdir), like, make_new, vocab_size)
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, like)
    new = make_new()
    np.testing.assert_array_equal(
        params["masked_lm"]["transform"]["kernel"], new["masked_lm"]["transform"]["kernel"]
    )
    assert lines[1:] == (
        "with new, random ones for masked_lm, next_sentence",
        "without classifier",
    )


def test_without_next_sentence_the_pooler_is_left_out(make_workdir):
    workdir = make_workdir()
    config = config_lib.load(str(workdir))
    config.model.next_sentence = False
    params, lines = initial_params(str(workdir), *like_of(config))
    assert "pooler" not in params["bert"]
    assert lines[1:] == ("without bert/pooler, next_sentence",)


def test_a_table_that_is_to_be_padded(make_workdir, random_params):
    """As tensor parallelism needs it; the rows that are added mean nothing."""
    workdir = make_workdir(model__vocab_size=60)
    config = config_lib.load(str(workdir))
    expected = random_params(config)["bert/embeddings/word_embeddings/embedding"]
    config.model.pad_vocab_to_multiple_of = 32
    params, _ = initial_params(str(workdir), *like_of(config))
    table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_array_equal(table, np.concatenate([expected, np.zeros((4, 16))]))
    assert params["masked_lm"]["bias"].shape == (64,)
    config.model.vocab_size = 64
    with pytest.raises(
        ValueError, match=r"- bert/embeddings/word_embeddings/embedding: \[60, 16\]"
    ):
        initial_params(str(workdir), *like_of(config))


def test_an_encoder_of_another_size_is_refused(make_workdir):
    workdir = make_workdir()
    config = config_lib.load(str(workdir))
    config.model.num_layers = 3
    with pytest.raises(ValueError, match=r"do not fit.*\+ bert/encoder/layer_2/.*; and 4 more"):
        initial_params(str(workdir), *like_of(config))


@pytest.fixture
def short_run(theirs, tmp_path):
    """Settings of two steps of pre-training on a few words, from the source on."""
    for i in range(3):
        (tmp_path / f"text{i}.txt").write_text(TEXT + f"\n{'abc'[i]} dog")
    config = new_config(theirs, steps=2, global_batch_size=8, data__num_processes=1)
    config.data.source, config.data.document = f"text:{tmp_path}/text*.txt", "file"
    config.data.validation_share = 0.0
    config.optimizer.warmup = "1"
    config.checkpoint.keep_best = 0
    return config


def test_pretraining_goes_on_from_a_foreign_folder(short_run, theirs, tmp_path, capsys):
    adopt(short_run, frozenset(), str(tmp_path / "new"))
    state = train(short_run, str(tmp_path / "new"))
    assert int(state.step) == 2
    said = capsys.readouterr().out
    assert f"start      from the parameters of {theirs} (Hugging Face)" in said
    assert "2 layers, hidden 16, 2 heads, gelu" in said


def spoil(folder, name, array=None):
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
def test_a_broken_folder_is_refused_before_data_are_prepared(
    short_run, theirs, tmp_path, array, message
):
    adopt(short_run, frozenset(), str(tmp_path / "new"))
    spoil(theirs, "bert.pooler.dense.bias", array)
    with pytest.raises(ValueError, match=message):
        train(short_run, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_an_encoder_that_does_not_fit_is_refused_before_data_are_prepared(
    short_run, make_workdir, tmp_path
):
    short_run.init_from = str(make_workdir(vocabulary=VOCABULARY))
    adopt(short_run, frozenset(), str(tmp_path / "new"))
    short_run.model.intermediate_size = 64
    with pytest.raises(ValueError, match=r"do not fit.*intermediate/kernel"):
        train(short_run, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_run_that_has_begun_goes_on_without_its_source(short_run, theirs, tmp_path):
    adopt(short_run, frozenset(), str(tmp_path / "new"))
    short_run.data.vocab = str(shutil.copy(short_run.data.vocab, tmp_path / "vocab.txt"))
    train(short_run, str(tmp_path / "new"))
    shutil.rmtree(theirs)
    assert int(train(short_run, str(tmp_path / "new")).step) == 2


def test_prepared_data_with_the_sources_vocabulary_stay(short_run, theirs, tmp_path):
    data = str(tmp_path / "data")
    adopt(short_run, frozenset(), "", data)
    prepare(config_lib.data_config(short_run), data, 1)
    # As if the vocabulary had been trained there.
    again = new_config(theirs)
    adopt(again, frozenset(), "", data)
    assert again.data.vocab == "train:wordpiece"
    assert Manifest.load(data).tokenizer().pieces == tuple(VOCABULARY.split("\n"))


def test_imported_parameters_cannot_be_resumed(short_run, theirs, tmp_path):
    from bert_jax.commands import convert

    convert.main(["convert", "from_hf", str(theirs), str(tmp_path / "out"), "--nocomparison"])
    with pytest.raises(ValueError, match="holds imported parameters, not a run: start one from"):
        train(short_run, str(tmp_path / "out"))
