"""The source of the parameters determines sizes and vocabulary, except for given fields."""

import shutil

import pytest

from bert_jax.config import store
from bert_jax.config.encoders import GptConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.task import default_config
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.init_from import resolve
from tests.tools.convert.conftest import SIZES, VOCABULARY
from tests.tools.convert.hf_folders import new_config


def pretraining(source, *given: str, **changes) -> RunConfig:
    """Returns a resolved configuration; the fields `given` stand on the command line."""
    return resolve(new_config(source, **changes).to_dict(), given)


def new_finetuning(source, **changes) -> RunConfig:
    values = {"init_from": str(source), "max_length": SIZES["max_position_embeddings"]}
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return default_config("multiple_choice").replace(values)


def finetuning(source, *given: str, **changes) -> RunConfig:
    return resolve(new_finetuning(source, **changes).to_dict(), given)


@pytest.fixture
def gpt(make_workdir):
    """A run of another kind of model, whose configuration has no token types."""
    return make_workdir(
        task="causal_lm", model=GptConfig(layer_norm_epsilon=1e-12), model__dropout_rate=0.0
    )


def test_a_run_determines_the_structure_and_not_the_settings_of_training(make_workdir):
    workdir = make_workdir(
        model__activation="gelu",
        model__norm_place="pre",
        model__positions="rotary",
        model__dropout_rate=0.3,
        model__remat=True,
        data__lowercase=False,
    )
    config = pretraining(workdir)
    assert {name: config[f"model.{name}"] for name in SIZES} == SIZES
    model = config.model
    assert (model.activation, model.norm_place, model.positions) == ("gelu", "pre", "rotary")
    assert config.data.vocab == str(workdir / "vocab.txt")
    assert config.data.lowercase is False
    assert (model.dropout_rate, model.remat) == (0.1, False)


def test_fields_on_the_command_line_are_kept(theirs):
    given = ("model.activation", "data.lowercase")
    changes = {"model__activation": "gelu_tanh", "data__lowercase": False}
    config = pretraining(theirs, *given, **changes)
    assert (config.model.activation, config.data.lowercase) == ("gelu_tanh", False)


# ------------------------------------------------------------------ fine-tuning other encoders


def test_fine_tuning_takes_another_kind_of_model_and_what_goes_with_it(gpt):
    config = finetuning(gpt)
    assert config.model.name == "gpt" and not hasattr(config.model, "type_vocab_size")
    assert (config.model.lm_head, config.model.mask_value) == ("tied", -1e9)
    assert config.model.dropout_rate == 0.1  # belongs to the training
    assert {name: config[f"model.{name}"] for name in SIZES} == SIZES
    task, optimizer = config.task, config.optimizer
    assert (task.pool, task.pooler, task.share_dropout) == ("last", False, True)
    assert task.lm_weight == 0.5
    assert (optimizer.name, optimizer.schedule) == ("gpt_adam", "gpt_linear")
    assert (optimizer.no_decay, optimizer.learning_rate, optimizer.warmup) == ((), 6.25e-5, "0.2%")
    given = {"task__lm_weight": 0.0, "optimizer__learning_rate": 1e-3, "model__remat": True}
    config = finetuning(gpt, "task.lm_weight", "model.remat", "optimizer.learning_rate", **given)
    assert (config.task.lm_weight, config.task.pool, config.model.remat) == (0.0, "last", True)
    assert config.optimizer.learning_rate == 1e-3  # of the file, since it is not the default


def test_fine_tuning_takes_folders_of_other_kinds(save):
    config = finetuning(save("RobertaForMaskedLM")[0])
    assert config.model.name == "roberta"
    assert (config.model.hidden_size, config.model.max_position_embeddings) == (16, 40)
    assert config.model.attention == "einsum" and config.optimizer.name == "bert_adam"


def test_another_kind_of_model_is_refused_where_fields_do_not_fit(gpt):
    message = "a model of the kind 'gpt', which has no config.model.type_vocab_size: leave it out."
    with pytest.raises(ValueError, match=message):
        finetuning(gpt, "model.type_vocab_size", model__type_vocab_size=3)
    values = new_config(gpt).to_dict()
    del values["model"]["lm_head"]
    with pytest.raises(ValueError, match="another kind of model: config.model lacks lm_head."):
        resolve(values, ())


@pytest.mark.parametrize(
    ("changes", "pool", "pooler"),
    [
        ({"model__norm_place": "pre", "model__next_sentence": False}, "mean", False),
        ({"model__norm_place": "pre", "model__next_sentence": True}, "cls", True),
        ({"model__norm_place": "post", "model__next_sentence": False}, "cls", True),
        (
            {
                "task": "causal_lm",
                "model__attention_pattern": "causal",
                "model__next_sentence": False,
            },
            "last",
            True,
        ),
    ],
)
def test_an_encoder_is_read_where_it_was_trained_unless_told_otherwise(
    make_workdir, changes, pool, pooler
):
    source = make_workdir(**changes)
    task = finetuning(source).task
    assert (task.pool, task.pooler) == (pool, pooler)
    task = finetuning(source, "task.pool", "task.pooler", task__pool="max").task
    assert (task.pool, task.pooler) == ("max", True)


# ------------------------------------------------------------------ vocabularies and begun runs


@pytest.mark.parametrize("vocab", ["train:wordpiece", "other.txt"])
def test_another_vocabulary_is_refused(theirs, tmp_path, vocab):
    (tmp_path / "other.txt").write_text(VOCABULARY.replace("q", "Q"))
    vocab = vocab if ":" in vocab else str(tmp_path / vocab)
    with pytest.raises(ValueError, match="is not the vocabulary .*ids would mean other words"):
        pretraining(theirs, "data.vocab", data__vocab=vocab)


@pytest.mark.parametrize("kind, new", [("theirs", new_config), ("gpt", new_finetuning)])
def test_a_run_that_has_begun_does_not_need_its_source(kind, new, request, tmp_path):
    source, begun = request.getfixturevalue(kind), tmp_path / "begun"
    values = new(source).to_dict()
    config = resolve(values, ())
    begun.mkdir()
    store.save(config, str(begun))
    shutil.rmtree(source)
    assert resolve(values, (), str(begun)).to_dict() == config.to_dict()
    with pytest.raises(ValueError, match="no such file or folder"):
        resolve(values, ())


def test_prepared_data_with_the_same_vocabulary_is_kept(theirs, tmp_path, monkeypatch):
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
    manifest = Manifest.load(data)
    assert manifest.tokenizer().pieces == tuple(VOCABULARY.split("\n"))
    assert resolve(new_config(theirs).to_dict(), (), "", data).data.vocab == config.data.vocab
    # As if the vocabulary had been trained there.
    manifest.content["settings"]["vocab"] = "train:wordpiece"
    monkeypatch.setattr(Manifest, "load", lambda _: manifest)
    assert resolve(new_config(theirs).to_dict(), (), "", data).data.vocab == "train:wordpiece"
