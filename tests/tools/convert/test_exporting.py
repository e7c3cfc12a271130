"""The exported folder in transformers: loads strictly, gives our numbers, and comes back."""

import dataclasses
import importlib
import inspect
import json
import pathlib

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.encoders import ModernBertConfig
from bert_jax.exchange import huggingface
from bert_jax.exchange.huggingface import MODELING
from bert_jax.files.errors import UserError
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.inference.model import load as load_trained
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.convert import conversions
from bert_jax.tools.convert.comparison import compare_with_source
from bert_jax.tools.convert.transformers_program import compare_token_ids
from bert_jax.training.workdir import open_model, open_workdir
from tests.tools.convert.hf_folders import from_hf, worst
from tests.twins import to_theirs, torch, transformers

FILES = [
    "certificate.json",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
]
# Name -> changes of a run's configuration, shapes of its head, the class of transformers, the class
# that finds it, and the outputs that are compared beside the hidden states.
RUNS = {
    "pretraining": (
        {"model__activation": "gelu_tanh", "model__attention": "dot_product"}
        | {"model__attention_dropout_rate": 0.0},
        {},
        *("BertForPreTraining", "AutoModelForPreTraining"),
        {"pooled", "masked-LM logits", "next-sentence logits"},
    ),
    "masked_lm": (
        {"model__activation": "gelu", "model__next_sentence": False},
        {},
        *("BertForMaskedLM", "AutoModelForMaskedLM", {"masked-LM logits"}),
    ),
    "classification": (
        {"task": "classification"},
        {"classifier__kernel": (16, 3), "classifier__bias": (3,)},
        *("BertForSequenceClassification", "AutoModelForSequenceClassification"),
        {"pooled", "task logits"},
    ),
    "tagging": (
        {"task": "tagging"},
        {"classifier__kernel": (16, 5), "classifier__bias": (5,)},
        *("BertForTokenClassification", "AutoModelForTokenClassification", {"task logits"}),
    ),
    "span": (
        {"task": "span", "model__pad_vocab_to_multiple_of": 50},
        {"span__kernel": (16, 2), "span__bias": (2,)},
        *("BertForQuestionAnswering", "AutoModelForQuestionAnswering", {"task logits"}),
    ),
    "multiple_choice": (
        {"task": "multiple_choice"},
        {"classifier__kernel": (16, 1), "classifier__bias": (1,)},
        *("BertForMultipleChoice", "AutoModelForMultipleChoice", {"pooled", "task logits"}),
    ),
}


@pytest.fixture
def export(make_workdir, tmp_path):
    """Returns a function (name of RUNS, **changes) -> (run, exported folder, certificate)."""

    def make(name="pretraining", compare=False, **more):
        changes, heads, *_ = RUNS[name]
        workdir, out = make_workdir(heads=heads, **changes | more), tmp_path / "out"
        return workdir, out, conversions.to_huggingface(str(workdir), str(out), compare=compare)

    return make


def load(folder: pathlib.Path, auto: str):
    """Their model; nothing may be missing, left over or of another shape."""
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


@pytest.mark.parametrize("name", RUNS)
def test_transformers_finds_the_class_and_has_every_bit_and_output(
    export, random_params, name, capsys
):
    _, heads, class_name, auto, outputs = RUNS[name]
    workdir, out, certificate = export(name, compare=True)
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert certificate == json.loads((out / "certificate.json").read_text())
    assert certificate["class"] == class_name
    assert "transformers" in certificate["comparison"]["with"]
    assert certificate["comparison"]["largest_difference"].keys() == {"hidden states", *outputs}
    assert worst(certificate) < 1e-5

    model = load(out, auto)
    assert type(model).__name__ == class_name
    params = random_params(store.load(str(workdir)), **heads)
    assert certificate["tensors"]["in"] == len(params)
    printed = capsys.readouterr().out
    if name == "span":
        assert "word_embeddings/embedding[64:]: 36 rows of padding" in printed
        words = params["bert/embeddings/word_embeddings/embedding"]
        params["bert/embeddings/word_embeddings/embedding"] = words[:64]
    if "bert/pooler/kernel" in params and "pooled" not in outputs:
        assert f"bert/pooler/kernel: {class_name} has no pooler" in printed
        params = {path: x for path, x in params.items() if not path.startswith("bert/pooler")}
    assert certificate["weights_sha256"] == weights_sha256(params)
    theirs = {tensor: x.detach().numpy() for tensor, x in model.named_parameters()}
    found = to_theirs(params)
    assert found.keys() == theirs.keys()
    for tensor, array in found.items():
        np.testing.assert_array_equal(array, theirs[tensor], err_msg=tensor)


def test_an_export_is_the_same_after_an_import(export, tmp_path):
    """Byte for byte; so is the folder that transformers saves, with its names in its order."""
    workdir, out, _ = export("classification")
    run = open_workdir(str(workdir))
    conversions.convert(str(out), str(tmp_path / "back"), compare=False)
    back = open_workdir(str(tmp_path / "back"))
    assert weights_sha256(run.params) == weights_sha256(back.params)
    assert run.tokenizer.fingerprint == back.tokenizer.fingerprint
    conversions.to_huggingface(str(tmp_path / "back"), str(tmp_path / "again"), compare=False)
    for file in FILES[1:]:
        assert (tmp_path / "again" / file).read_bytes() == (out / file).read_bytes(), file
    load(out, "AutoModelForSequenceClassification").save_pretrained(tmp_path / "theirs")
    weights = [folder / "model.safetensors" for folder in (out, tmp_path / "theirs")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    theirs = json.loads((tmp_path / "theirs" / "config.json").read_text())
    ours = json.loads((out / "config.json").read_text())
    assert {key: theirs[key] for key in ours} == ours


@pytest.mark.parametrize(
    "name",
    [
        "OpenAIGPTLMHeadModel",
        "ModernBertForMaskedLM",
        "DistilBertForMaskedLM",
        "ElectraForSequenceClassification",
        "RobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
    ],
)
def test_other_models_are_read_back_by_transformers_and_here(save, tmp_path, name, capsys):
    is_gpt = name.startswith("OpenAI")
    folder, model = save(name, **({"num_labels": 3} if "Classification" in name else {}))
    run = from_hf(folder)
    certificate = conversions.to_huggingface(str(tmp_path / "out"), str(tmp_path / "again"))
    assert certificate["class"] == name and worst(certificate) < 1e-5
    again = load(tmp_path / "again", name)
    if is_gpt:  # the special tokens of an import of GPT are pieces, with new embeddings
        (path,) = certificate["tensors"]["random"]
        assert f"random      {path}: the import did not have it" in capsys.readouterr().out
        assert {n: x.tolist() for n, x in again.named_parameters()} == {
            n: x.tolist() for n, x in to_theirs(run.params).items()
        }
    else:
        for (tensor, theirs), (_, found) in zip(
            model.state_dict().items(), again.state_dict().items(), strict=True
        ):
            assert torch.equal(theirs, found), tensor
        encoded = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")("the cat")
        ids = run.tokenizer.encode("the cat")
        assert encoded["input_ids"] == [run.tokenizer.cls_id, *ids, run.tokenizer.sep_id]
        assert ("token_type_ids" in encoded) == name.startswith("Electra")
        between = [run.tokenizer.sep_id] * run.tokenizer.num_separators
        pair = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")("the cat", "the cat")
        assert pair["input_ids"] == [encoded["input_ids"][0], *ids, *between, *ids, between[0]]
    if name.startswith("ModernBert"):
        assert again.config.layer_types == model.config.layer_types
        assert again.config.rope_parameters == model.config.rope_parameters
    back = open_model(str(tmp_path / "again"))
    assert (back.tokenizer.pieces, back.new_rows) == (run.tokenizer.pieces, {})
    assert back.tokenizer.encode("the cat") == run.tokenizer.encode("the cat")
    assert weights_sha256(back.params) == weights_sha256(run.params)


# Name -> changes of a run's configuration, its head and the class, of models for which an exported
# folder brings the classes.
FAST = {
    **{"model__norm_place": "pre", "model__norm": "rms_norm", "model__positions": "rotary"},
    **{"model__biases": False, "model__query_key_norm": True, "model__convolution": 3},
    **{"model__activation": "relu_squared", "model__lm_head": "tied", "model__type_vocab_size": 0},
    **{"model__next_sentence": False},
}
CLASSIFIER = {"classifier__kernel": (16, 3), "classifier__bias": (3,)}
OWN = {
    "copies": (FAST | {"model__copy_head": True}, "ForMaskedLM"),
    "window": (
        {"model__attention_pattern": "window", "model__attention_window": 5}
        | {"model__global_every": 2, "model__window_rotary_base": 100.0}
        | {"model__positions": "rotary", "model__next_sentence": False}
        | {"model__feed_forward": "gated", "model__norm_place": "pre"},
        "ForMaskedLM",
    ),
    "predicts next": (FAST | {"model__predicts_next": True}, "ForMaskedLM"),
    "sinusoidal": ({"model__positions": "sinusoidal"}, "ForMaskedLM"),
    "mean": (
        {"task": "classification", "task__pool": "mean", "task__pooler": False} | FAST,
        "ForSequenceClassification",
    ),
    "tags": ({"task": "tagging"} | FAST, "ForTokenClassification"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_model_without_a_class_brings_its_own(make_workdir, tmp_path, name):
    changes, end = OWN[name]
    workdir = make_workdir(heads=CLASSIFIER if "task" in changes else None, **changes)
    certificate = conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert certificate["class"] == f"BertJax{end}"
    assert worst(certificate) < 1e-5
    outputs = {"masked-LM logits"} if end == "ForMaskedLM" else {"task logits"}
    assert certificate["comparison"]["largest_difference"].keys() == {"hidden states", *outputs}
    assert (tmp_path / "out" / MODELING.name).read_bytes() == MODELING.read_bytes()
    run, back = open_workdir(str(workdir)), open_model(str(tmp_path / "out"))
    left_out = ("next_sentence/", "bert/pooler/")
    kept = {path: x for path, x in run.params.items() if not path.startswith(left_out)}
    assert weights_sha256(back.trained_params) == weights_sha256(kept)
    training = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "next_sentence": False}
    found = [dataclasses.replace(m.config.model, **training).to_dict() for m in (run, back)]
    assert found[0] == found[1]
    # Another file than ours is not run.
    (tmp_path / "out" / MODELING.name).write_text("raise SystemExit")
    reason = compare_with_source(open_model(str(tmp_path / "out")))["none_because"]
    assert reason == f"its {MODELING.name} is not that of this version, and is not run"
    compare_token_ids(open_model(str(tmp_path / "out")))  # does not exit


@pytest.mark.parametrize("changes", [{"predicts_next": True}, {"activation": "relu_squared"}])
def test_modernbert_in_transformers_has_one_activation_and_no_shift(
    make_workdir, tmp_path, changes
):
    fields = {f"model__{name}": x for name, x in changes.items()}
    workdir = make_workdir(model=ModernBertConfig(), **fields)
    with pytest.raises(UserError, match=f"config.model.{[*changes][0]}="):
        conversions.to_huggingface(str(workdir), str(tmp_path / "out"))


def test_modernbert_with_one_rotary_base_for_all_layers(make_workdir, tmp_path):
    workdir = make_workdir(model=ModernBertConfig(), model__window_rotary_base=0.0)
    assert worst(conversions.to_huggingface(str(workdir), str(tmp_path / "out"))) < 1e-5


def test_a_published_regression_is_one_in_transformers(make_workdir, tmp_path):
    """Its scores are from 0 to 5: `pipeline` would apply the sigmoid to a single label."""
    heads = {"classifier__kernel": (16, 1), "classifier__bias": (1,)}
    fields = {"task": "classification", "task__published": "stsb", "metrics": ("pearson",)}
    workdir = make_workdir(heads=heads, **fields)
    conversions.to_huggingface(str(workdir), str(tmp_path / "out"), compare=False)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "regression"


def test_what_an_export_loses_is_a_difference(make_workdir, tmp_path, monkeypatch):
    """The run is compared, not what is read back from the folder."""
    workdir = make_workdir(**FAST, model__predicts_next=True)
    config = huggingface._config
    without = lambda *args: config(*args) | {"predicts_next": False}  # noqa: E731
    monkeypatch.setattr(huggingface, "_config", without)
    assert worst(conversions.to_huggingface(str(workdir), str(tmp_path / "out"))) > 0.01


@pytest.mark.parametrize("changes", [{"predicts_next": True}, {"copy_head": True}])
def test_splade_of_an_encoder_with_another_head_has_no_shift_and_no_copies(
    make_workdir, tmp_path, changes
):
    fields = FAST | {f"model__{name}": x for name, x in changes.items()}
    heads = {"masked_lm__transform__kernel": (16, 16), "masked_lm__layer_norm__scale": (16,)}
    workdir = make_workdir(
        heads=heads | {"masked_lm__bias": (64,)},
        **fields | {"model__lm_head": "transform"},
        task="splade",
    )
    (workdir / "labels.json").write_text("[]")
    out = tmp_path / "out"
    assert worst(conversions.to_huggingface(str(workdir), str(out))) < 1e-5
    vectors = load_trained(str(workdir)).encode_sparse(["the cat sat"]).toarray()
    model = transformers.AutoModelForMaskedLM.from_pretrained(out, trust_remote_code=True)
    ids = transformers.AutoTokenizer.from_pretrained(out)("the cat sat", return_tensors="pt")
    logits = model.eval()(ids["input_ids"]).logits
    weights = torch.log1p(torch.relu(logits)).amax(1).detach().numpy()
    assert weights.max() > 0
    np.testing.assert_allclose(vectors, weights, atol=1e-5)


@pytest.mark.parametrize(
    "end", ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"]
)
def test_trainer_keeps_token_types_and_passes_no_other_arguments(end):
    """It reads the signature of `forward`: **kwargs would make it pass `num_items_in_batch`."""
    module = importlib.import_module("bert_jax.exchange.modeling_bert_jax")  # it needs torch
    parameters = inspect.signature(getattr(module, f"BertJax{end}").forward).parameters
    assert {"token_type_ids", "labels"} <= parameters.keys()
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


@pytest.fixture
def sentencepiece_model(tmp_path) -> bytes:
    from bert_jax.text.vocabulary import count_words, train_vocabulary

    path = tmp_path / "trained.model"
    texts = ["The quick brown fox, it is said, jumps over the lazy dog; it sleeps."] * 5
    train_vocabulary("unigram", count_words("unigram", texts, lowercase=True), 64, path)
    return path.read_bytes()


def test_their_tokenizer_gives_our_ids(export, sentencepiece_model):
    workdir, out, certificate = export(compare=True, vocabulary=sentencepiece_model)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    ours = load_tokenizer(workdir / "vocab.model", lowercase=True)
    assert (theirs.mask_token_id, theirs.pad_token_id) == (ours.mask_id, ours.pad_id)
    texts = [("The quick fox", "It is said."), ("it is [MASK].", "so it is said: jumps")]
    batch = theirs(*zip(*texts, strict=True), padding=True, return_tensors="pt")
    for row, (a, b) in zip(batch["input_ids"].tolist(), texts, strict=True):
        first, second = (ours.encode(text, special_tokens=True) for text in (a, b))
        ids = [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
        assert row == ids + [ours.pad_id] * (len(row) - len(ids))
    assert worst(certificate) < 1e-5
    assert torch.equal(batch["attention_mask"], (batch["input_ids"] != ours.pad_id).long())
