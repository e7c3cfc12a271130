"""The source of the parameters determines sizes and vocabulary, except for given fields."""

import json
import shutil

import pytest

from bert_jax.config import defaults, store
from bert_jax.config.encoders import GptConfig
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.init_from import resolve
from tests.tools.convert.conftest import SIZES, VOCABULARY
from tests.tools.convert.hf_folders import new_config


def test_a_run_determines_them(make_workdir):
    workdir = make_workdir(model__activation="gelu", data__lowercase=False, model__dropout_rate=0.3)
    config = new_config(workdir)
    config = resolve(config.to_dict(), ())
    assert {name: config[f"model.{name}"] for name in SIZES} == SIZES
    assert config.model.activation == "gelu"
    assert config.data.vocab == str(workdir / "vocab.txt")
    assert config.data.lowercase is False
    assert config.model.dropout_rate == 0.1  # belongs to the training, not to the parameters


def test_the_structure_of_a_model_is_taken_and_its_settings_of_training_are_not(make_workdir):
    workdir = make_workdir(model__norm_place="pre", model__positions="rotary", model__remat=True)
    config = new_config(workdir)
    config = resolve(config.to_dict(), ())
    assert (config.model.norm_place, config.model.positions) == ("pre", "rotary")
    assert config.model.remat is False


def finetuning(init_from, **changes):
    values = {"init_from": str(init_from), "max_length": SIZES["max_position_embeddings"]}
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return defaults.multiple_choice().replace(values)


@pytest.fixture
def gpt(make_workdir):
    """A run of another kind of model, whose configuration has no token types."""
    return make_workdir(
        task="causal_lm", model=GptConfig(layer_norm_epsilon=1e-12), model__dropout_rate=0.0
    )


def test_fine_tuning_takes_another_kind_of_model_and_what_goes_with_it(gpt):
    config = finetuning(gpt)
    config = resolve(config.to_dict(), ())
    assert config.model.name == "gpt" and not hasattr(config.model, "type_vocab_size")
    assert (config.model.lm_head, config.model.mask_value) == ("tied", -1e9)
    assert config.model.dropout_rate == 0.1  # belongs to the training
    assert {name: config[f"model.{name}"] for name in SIZES} == SIZES
    head = config.head
    assert (head.pool, head.pooler, head.share_dropout, head.lm_weight) == (
        "last",
        False,
        True,
        0.5,
    )
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.schedule, optimizer.no_decay) == (
        "gpt_adam",
        "gpt_linear",
        (),
    )
    assert (optimizer.learning_rate, optimizer.warmup) == (6.25e-5, "0.2%")
    (gpt / "new").mkdir()
    store.save(config, str(gpt / "new"))
    again = finetuning(gpt)
    again = resolve(again.to_dict(), (), str(gpt / "new"))  # from the begun run, without the source
    assert again.to_dict() == config.to_dict()


def test_values_of_the_command_line_and_of_the_file_are_kept(gpt):
    config = finetuning(gpt, head__lm_weight=0.0, optimizer__learning_rate=1e-3, model__remat=True)
    config = resolve(config.to_dict(), {"head.lm_weight", "model.remat"}, "")
    assert config.head.lm_weight == 0.0 and config.head.pool == "last"
    assert config.optimizer.learning_rate == 1e-3  # of the file, since it is not the default
    assert config.model.remat is True


def test_a_field_that_the_other_kind_of_model_lacks_is_refused(gpt):
    config = finetuning(gpt, model__type_vocab_size=3)
    message = "a model of the kind 'gpt', which has no config.model.type_vocab_size: leave it out."
    with pytest.raises(ValueError, match=message):
        resolve(config.to_dict(), {"model.type_vocab_size"}, "")


def test_pre_training_does_not_take_another_kind_of_model(gpt):
    values = new_config(gpt).to_dict()
    del values["model"]["lm_head"]
    with pytest.raises(ValueError, match="another kind of model: config.model lacks lm_head."):
        resolve(values, ())


@pytest.mark.parametrize(
    ("place", "pairs", "pool", "pooler"),
    [("pre", False, "mean", False), ("pre", True, "cls", True), ("post", False, "cls", True)],
)
def test_a_modern_encoder_without_pairs_is_read_at_all_tokens(
    make_workdir, place, pairs, pool, pooler
):
    source = make_workdir(model__norm_place=place, model__next_sentence=pairs)
    config = finetuning(source)
    config = resolve(config.to_dict(), ())
    assert (config.head.pool, config.head.pooler) == (pool, pooler)
    config = finetuning(source)
    config = resolve(config.to_dict(), {"head.pool", "head.pooler"}, "")
    assert (config.head.pool, config.head.pooler) == ("cls", True)


def test_a_causal_model_is_read_at_its_last_token_unless_told_otherwise(make_workdir):
    source = make_workdir(
        task="causal_lm", model__attention_pattern="causal", model__next_sentence=False
    )
    config = finetuning(source)
    config = resolve(config.to_dict(), ())
    assert (config.head.pool, config.head.pooler, config.optimizer.name) == (
        "last",
        True,
        "bert_adam",
    )
    config = finetuning(source, head__pool="max")
    config = resolve(config.to_dict(), {"head.pool"}, "")
    assert config.head.pool == "max"


def test_a_folder_of_another_program_determines_them(theirs, shared_data):
    config = new_config(theirs)
    config = resolve(config.to_dict(), ())
    assert config.model.hidden_size == 16 and config.model.activation == "gelu"
    assert config.data.vocab == str(theirs / "vocab.txt")
    config = new_config(shared_data / "checkpoints/keras_bert_tiny_tf")
    config = resolve(config.to_dict(), ())
    assert config.model.hidden_size == 4 and config.model.activation == "gelu_tanh"


def test_fields_on_the_command_line_are_kept(theirs):
    config = new_config(theirs, model__activation="gelu_tanh", data__lowercase=False)
    config = resolve(config.to_dict(), {"model.activation", "data.lowercase"}, "")
    assert config.model.activation == "gelu_tanh"
    assert config.data.lowercase is False


def test_without_a_source_nothing_changes():
    config = defaults.pretraining()
    assert resolve(config.to_config_dict(), ()) == config


@pytest.mark.parametrize("vocab", ["train:wordpiece", "other.txt"])
def test_another_vocabulary_is_refused(theirs, tmp_path, vocab):
    (tmp_path / "other.txt").write_text(VOCABULARY.replace("q", "Q"))
    vocab = vocab if ":" in vocab else str(tmp_path / vocab)
    config = new_config(theirs, data__vocab=vocab)
    with pytest.raises(ValueError, match="is not the vocabulary .*ids would mean other words"):
        resolve(config.to_dict(), {"data.vocab"}, "")


def test_a_copy_of_the_vocabulary_is_accepted(theirs, tmp_path):
    vocab = str(shutil.copy(theirs / "vocab.txt", tmp_path / "copy.txt"))
    config = new_config(theirs, data__vocab=vocab)
    config = resolve(config.to_dict(), {"data.vocab"}, "")
    assert config.data.vocab == vocab


def test_a_vocabulary_in_tokenizer_json_only(theirs):
    ids = {piece: i for i, piece in enumerate(VOCABULARY.split("\n"))}
    (theirs / "vocab.txt").unlink()
    (theirs / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "WordPiece", "vocab": ids}})
    )
    with pytest.raises(ValueError, match="in tokenizer.json only: import it with"):
        resolve(new_config(theirs).to_dict(), ())


def test_a_run_without_a_vocabulary(make_workdir):
    (workdir := make_workdir()).joinpath("vocab.txt").unlink()
    with pytest.raises(ValueError, match="holds no vocab.txt or vocab.model"):
        resolve(new_config(workdir).to_dict(), ())


def test_a_run_that_has_begun_does_not_need_its_source(theirs, tmp_path):
    config = new_config(theirs)
    config = resolve(config.to_dict(), ())
    begun = tmp_path / "begun"
    begun.mkdir()
    store.save(config, str(begun))
    shutil.rmtree(theirs)
    again = new_config(theirs)
    again = resolve(again.to_dict(), (), str(begun))
    assert again.to_dict() == store.load(str(begun)).to_dict()
    with pytest.raises(ValueError, match="no such file or folder"):
        resolve(new_config(theirs).to_dict(), ())


def test_prepared_data_with_the_same_vocabulary_is_kept(theirs, tmp_path):
    for i in range(3):
        text = " ".join("the quick fox jumps".split()[i:])
        (tmp_path / f"text{i}.txt").write_text(f"{text}\n{'abc'[i]} dog\n" * 4)
    data = str(tmp_path / "data")
    config = new_config(
        theirs, data__source=f"text:{tmp_path}/text*.txt", data__document_separator="file"
    )
    config = config.replace({"data.validation_share": 0.0})
    config = resolve(config.to_dict(), (), "", data)
    prepare(config.data, data, 1)
    # As if the vocabulary had been trained there.
    again = new_config(theirs)
    again = resolve(again.to_dict(), (), "", data)
    assert again.data.vocab == "train:wordpiece"
    assert Manifest.load(data).tokenizer().pieces == tuple(VOCABULARY.split("\n"))
