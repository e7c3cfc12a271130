"""What cannot be imported or exported: one line that names the problem, and nothing is written."""

import dataclasses
import functools
import json
import pathlib

import numpy as np
import pytest

from bert_jax.exchange import LoadedModel, export, huggingface, open_foreign, stablehlo
from bert_jax.formats.names import gpt as gpt_names
from bert_jax.formats.weight_table import export_params
from bert_jax.tasks import default_config
from bert_jax.tools.convert import conversions
from bert_jax.training import workdir
from tests.tools.convert import bilm_folder
from tests.tools.convert.hf_folders import edit, edit_config, from_hf, run_import


def check_refused(folder: pathlib.Path, message: str, *words: str, command="from_hf") -> None:
    """Checks for an error of one line, and that no file was written or removed."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ValueError, match=message) as error:
        run_import(command, folder, "--nocomparison", *words)
    assert "\n" not in str(error.value)
    assert sorted(folder.parent.rglob("*")) == before


def drop(*names):
    return lambda folder: edit(folder, lambda arrays: [arrays.pop(name) for name in names])


def put(name, array, dtype="f4"):
    return lambda folder: edit(folder, lambda arrays: arrays.update({name: np.array(array, dtype)}))


def configure(**changes):
    return lambda folder: edit_config(folder, **changes)


def configure_bilm(**changes):
    return lambda folder: edit_config(folder, "options.json", **changes)


def remove(file):
    return lambda folder: (folder / file).unlink()


def write(file, content):
    return lambda folder: (folder / file).write_text(content)


def rewrite_part(number, change):
    file = f"params_{number}.npy"
    return lambda folder: np.save(folder / file, change(np.load(folder / file)))


def to_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


BERT = {
    "missing tensor": (
        drop("bert.pooler.dense.bias"),
        r"theirs do not match .*\+ bert.pooler.dense.bias: \[16\]",
    ),
    "a layer too many": (
        configure(num_hidden_layers=1),
        r"- bert.encoder.layer.1.*; and \d+ more\.$",
    ),
    "another shape": (
        put("bert.pooler.dense.weight", np.ones((16, 8))),
        r"- bert.pooler.dense.weight: \[16, 8\]; \+ bert.pooler.dense.weight: \[16, 16\]",
    ),
    "NaN": (
        put("bert.pooler.dense.bias", [np.nan, np.inf, *[0] * 14]),
        r"theirs: bert.pooler.dense.bias has 2 NaN or infinite values \(as float32\) of 16",
    ),
    "int8": (
        put("bert.pooler.dense.weight", np.ones((16, 16)), "i1"),
        "bert.pooler.dense.weight has the dtype int8: quantized weights are not supported",
    ),
    "adapters": (write("adapter_config.json", "{}"), "adapters are not supported; merge them"),
    "two names for one": (put("bert.embeddings.LayerNorm.gamma", np.ones(16)), "twice"),
    "another decoder": (
        put("cls.predictions.decoder.weight", np.ones((57, 16))),
        "cls.predictions.decoder.weight is expected to be .*has other values",
    ),
    "vocabulary of another size": (configure(vocab_size=58), "57 pieces and the model 58"),
    "activation": (configure(hidden_act="relu"), "hidden_act='relu': only gelu, "),
    "no size": (configure(hidden_size=None), "config.json lacks hidden_size"),
    "pickle": (to_pickle, r"pytorch_model.bin is a pickle.*weights_only=True"),
    "no weights": (remove("model.safetensors"), "has no model.safetensors"),
    "no config": (remove("config.json"), "config.json is missing"),
    "no vocabulary": (remove("vocab.txt"), "neither vocab.txt nor tokenizer.json"),
}
GPT = {
    "missing part": (
        drop("transformer.h.1.attn.c_attn.bias"),
        r"\+ transformer.h.1.attn.c_attn.bias: \[48\]",
    ),
    "another mask": (
        put("transformer.h.0.attn.bias", np.ones((1, 1, 40, 40))),
        "attn.bias is expected to be the causal mask",
    ),
}
MODERNBERT = {
    "layers": (
        configure(layer_types=["sliding_attention", *3 * ["full_attention"]]),
        "only full_attention in the first and then in every n-th layer is supported.",
    ),
    "rotary positions": (
        configure(rope_parameters={"full_attention": {"rope_type": "yarn"}}),
        "has rope_type='yarn': only 'default' is supported.",
    ),
}
CLASSIFIER = {
    "no head": (
        drop("classifier.weight", "classifier.bias"),
        "is a model for the task 'classification' and lacks classifier.bias",
    )
}
GOOGLE = {
    "no vocabulary": (remove("vocab.txt"), "vocab.txt is missing: name a vocabulary with --vocab"),
}
OPENAI = {
    "missing part": (remove("params_3.npy"), "params_3.npy is missing"),
    "no shapes": (
        write("params_shapes.json", "[[1]]"),
        "has 1 shapes: the released model has two tables and 12 tensors for each layer",
    ),
    "a short part": (rewrite_part(9, lambda x: x[1:]), "numbers, and params_shapes.json"),
    "a pickle": (
        lambda f: np.save(f / "params_0.npy", np.array([{}]), allow_pickle=True),
        "params_0.npy cannot be read",
    ),
}
CNN = bilm_folder.OPTIONS["char_cnn"]
BILM = {
    "one direction": (
        configure_bilm(bidirectional=False),
        "bidirectional=false: only models with both directions",
    ),
    "characters": (
        configure_bilm(char_cnn=CNN | {"n_characters": 300}),
        "n_characters=300: only 261",
    ),
    "not hdf5": (write("lm_weights.hdf5", "x"), "lm_weights.hdf5 cannot be read as hdf5"),
    "no weights": (remove("lm_weights.hdf5"), r"has no \*weights.hdf5"),
}
BROKEN = [
    pytest.param(name, *case, id=f"{name} {title}")
    for name, cases in {
        "BertForPreTraining": BERT,
        "BertForSequenceClassification": CLASSIFIER,
        "OpenAIGPTLMHeadModel": GPT,
        "ModernBertForMaskedLM": MODERNBERT,
        "google": GOOGLE,
        "openai": OPENAI,
        "bilm": BILM,
    }.items()
    for title, case in cases.items()
]


@pytest.mark.parametrize("name, spoil, message", BROKEN)
def test_an_invalid_folder_is_not_imported(request, tmp_path, name, spoil, message):
    command = f"from_{name}"
    if name == "bilm":
        folder = bilm_folder.write_folder(tmp_path / "model")
    elif name == "openai":
        folder, _ = request.getfixturevalue("openai")
    elif name == "google":
        folder, _ = request.getfixturevalue("google")()
    else:
        folder, _ = request.getfixturevalue("save")(name)
        command = "from_hf"
    spoil(folder)
    check_refused(folder, message, command=command)


def test_another_activation_cannot_be_chosen(save):
    message = "whose activation is .*: leave out --activation=gelu_tanh"
    check_refused(save("ModernBertModel")[0], message, "--activation=gelu_tanh")


def test_no_folder_is_overwritten_or_left_incomplete(save, monkeypatch):
    folder, _ = save()
    with monkeypatch.context() as patch:
        patch.setattr(workdir.Checkpoints, "save_params", lambda *_, **__: 1 / 0)
        before = sorted(folder.parent.rglob("*"))
        with pytest.raises(ZeroDivisionError):
            from_hf(folder)
        assert sorted(folder.parent.rglob("*")) == before
    from_hf(folder)
    check_refused(folder, "out exists already")


# ------------------------------------------------------------------ exports


@pytest.mark.parametrize(
    "export, module, function",
    [
        (conversions.to_huggingface, huggingface, "write_safetensors"),
        (conversions.to_stablehlo, stablehlo, "file_sha256"),
    ],
)
def test_no_export_overwrites_a_folder_or_leaves_files(
    make_workdir, tmp_path, monkeypatch, export, module, function
):
    run = make_workdir()
    with pytest.raises(ValueError, match="exists already: name a new folder"):
        export(str(run), str(run))
    monkeypatch.setattr(module, function, lambda *_: 1 / 0)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ZeroDivisionError):
        export(str(run), str(tmp_path / "out"))
    assert sorted(tmp_path.rglob("*")) == before


# Class, field of the configuration, its value and the message.
CHANGED = [
    ("BertForPreTraining", "model.attention_pattern", "causal", "BERT has no config.model.att.*"),
    ("BertForMultipleChoice", "task.pool", "last", "pool='last': transformers' .*'cls'"),
    ("BertForMultipleChoice", "task.pooler", False, "pooler=False: transformers' .*True"),
    ("BertForSequenceClassification", "task.both_orders", True, "both_orders=True: .*False"),
    ("BertForTokenClassification", "task.head", "crf", "head='crf': transformers' .*'linear'"),
    ("BertForTokenClassification", "task.layers", "sum_last_4", "layers='sum_last_4': .*'last'"),
    ("BertForQuestionAnswering", "task.lm_weight", 0.5, "lm_weight=0.5: transformers' .*0.0"),
    ("OpenAIGPTLMHeadModel", "model.norm_place", "pre", "norm_place='pre', only 'post'"),
    ("OpenAIGPTLMHeadModel", "model.intermediate_size", 48, r"48, only 4 \* hidden_size = 64"),
    ("ModernBertForMaskedLM", "model.norm", "rms_norm", "ModernBERT has no config.model.norm='rms"),
]


@pytest.fixture(scope="module")
def opened(saved):
    """Returns a function: class of transformers -> an opened model of it."""

    @functools.cache
    def open_class(name: str) -> LoadedModel:
        changes = {"num_labels": 1} if name == "BertForMultipleChoice" else {}
        return open_foreign(str(saved(name, "float32", json.dumps(changes))[0]))

    return open_class


@pytest.mark.parametrize("name, field, value, message", CHANGED)
def test_models_that_transformers_lacks_are_refused(opened, tmp_path, name, field, value, message):
    model = opened(name)
    model = dataclasses.replace(model, config=model.config.replace({field: value}))
    with pytest.raises(ValueError, match=message):
        export(model, "huggingface", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_gpt_with_another_task_has_no_class(opened, tmp_path):
    model = opened("OpenAIGPTLMHeadModel")
    config = default_config("pretraining").replace({"phases": ((16, 1.0),)}, model=model.model)
    with pytest.raises(ValueError, match="no class for a GPT with config.task.name='pretraining'"):
        export(dataclasses.replace(model, config=config), "huggingface", tmp_path / "model")


def test_tensors_with_parts_are_not_exported_in_part():
    params = {"gpt/encoder/layer_0/attention/query/bias": np.ones(4, np.float32)}
    message = "stores transformer.h.0.attn.c_attn.bias as a whole, and of its parts only"
    with pytest.raises(ValueError, match=message):
        export_params(params, gpt_names.HUGGINGFACE, "Hugging Face")
