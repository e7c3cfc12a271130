"""The exported folder in transformers: loads strictly, and gives our numbers."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.devices.trees import unflatten
from bert_jax.formats.names import bert as bert_names
from bert_jax.formats.weight_table import import_params, weights_sha256
from bert_jax.models import make_encoder
from bert_jax.models.heads import PreTrainingModel
from bert_jax.models.pooling import EncoderWithPooler
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.convert import conversions
from bert_jax.training.workdir import open_model, open_workdir
from tests.tools.convert.hf_folders import from_hf, worst

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

FILES = [
    "certificate.json",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
]
TEXTS = [("the quick fox", "jumps over"), ("it is [MASK].", "so they say it sleeps")]
# Heads that the tables know, as parameters of a run.
HEADS = {
    "classification": {"classifier__kernel": (16, 3), "classifier__bias": (3,)},
    "tagging": {"classifier__kernel": (16, 5), "classifier__bias": (5,)},
    "span": {"span__kernel": (16, 2), "span__bias": (2,)},
    "multiple_choice": {"classifier__kernel": (16, 1), "classifier__bias": (1,)},
}
CLASSES = {
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "classification": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
    "multiple_choice": "BertForMultipleChoice",
}
AUTO = {
    "pretraining": "AutoModelForPreTraining",
    "masked_lm": "AutoModelForMaskedLM",
    "classification": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
    "multiple_choice": "AutoModelForMultipleChoice",
}


@pytest.fixture
def export(make_workdir, tmp_path):
    """Returns a function (**changes) -> (folder of the run, exported folder)."""

    def make(**changes):
        workdir = make_workdir(**changes)
        run_command(["convert", "to_hf", str(workdir), f"{tmp_path / 'out'}/", "--nocomparison"])
        return workdir, tmp_path / "out"

    return make


def load(folder: pathlib.Path, auto: str):
    """Their model; nothing may be missing, left over or of another shape."""
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def our_config(workdir: pathlib.Path):
    return store.load(str(workdir)).model


def our_batch(theirs) -> dict[str, np.ndarray]:
    """The same batch in our form, with a prediction at every position."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    ids, types, mask = (theirs[name].numpy() for name in names)
    every = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return {
        "input_ids": ids,
        "token_type_ids": types,
        "position_ids": every,
        "example_ids": mask,
        "cls_positions": np.zeros((len(ids), 1), np.int32),
        "masked_lm_positions": every,
    }


@pytest.mark.parametrize("task", ["pretraining", "masked_lm"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_the_export_of_a_pretrained_model_gives_the_same_numbers(
    export, random_params, task, activation
):
    changes = {"model__next_sentence": False} if task == "masked_lm" else {}
    workdir, out = export(model__activation=activation, **changes)
    assert sorted(path.name for path in out.iterdir()) == FILES
    model = load(out, AUTO[task])
    assert type(model).__name__ == CLASSES[task]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ours = load_tokenizer(workdir / "vocab.txt", lowercase=True)
    batch = tokenizer(*zip(*TEXTS, strict=True), padding=True, return_tensors="pt")
    for row, (a, b) in zip(batch["input_ids"].tolist(), TEXTS, strict=True):
        first, second = (ours.encode(text, special_tokens=True) for text in (a, b))
        ids = [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
        assert row == ids + [ours.pad_id] * (len(row) - len(ids))

    params = random_params(store.load(str(workdir)))
    config, tree, arrays = our_config(workdir), unflatten(params), our_batch(batch)
    encoded: Any = make_encoder(config).apply(
        {"params": tree["bert"]}, arrays, deterministic=True, keep_all=True
    )
    with torch.no_grad():
        theirs = model(**batch, output_hidden_states=True)
    is_text = arrays["example_ids"] > 0
    for state, other in zip(encoded.all_hidden, theirs.hidden_states, strict=True):
        np.testing.assert_allclose(state[is_text], other.numpy()[is_text], atol=1e-5, rtol=0)
    model = PreTrainingModel(config, next_sentence=task == "pretraining")
    mine: Any = model.apply({"params": tree}, arrays, deterministic=True)
    logits = theirs.logits if task == "masked_lm" else theirs.prediction_logits
    np.testing.assert_allclose(
        mine.masked_lm_logits[is_text], logits.numpy()[is_text], atol=1e-5, rtol=0
    )
    if task == "pretraining":
        pairs = theirs.seq_relationship_logits.numpy()
        np.testing.assert_allclose(mine.next_sentence_logits[:, 0], pairs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("task", HEADS)
def test_the_export_of_a_task_gives_the_same_numbers(export, random_params, task):
    workdir, out = export(task=task, heads=HEADS[task])
    model = load(out, AUTO[task])
    assert type(model).__name__ == CLASSES[task]
    params = random_params(store.load(str(workdir)), **HEADS[task])
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    batch = tokenizer(*zip(*TEXTS, strict=True), padding=True, return_tensors="pt")
    shaped = {k: v[None] if task == "multiple_choice" else v for k, v in batch.items()}
    config, arrays = our_config(workdir), our_batch(batch)
    tree = unflatten(params)
    encoder = EncoderWithPooler(config)
    outputs: Any = encoder.apply({"params": tree["bert"]}, arrays, deterministic=True)
    encoded, pooled = outputs
    with torch.no_grad():
        theirs = model(**shaped)
    on_cls = task in ("classification", "multiple_choice")
    head = tree["span" if task == "span" else "classifier"]
    mine = np.asarray(pooled[:, 0] if on_cls else encoded.hidden) @ head["kernel"] + head["bias"]
    if task == "span":
        other = torch.stack([theirs.start_logits, theirs.end_logits], -1)
    else:
        other = theirs.logits.T if task == "multiple_choice" else theirs.logits
    keep = slice(None) if on_cls else arrays["example_ids"] > 0
    np.testing.assert_allclose(mine[keep], other.numpy()[keep], atol=1e-5, rtol=0)


def test_exported_weights_are_equal_bit_for_bit(export, random_params):
    workdir, out = export()
    params = random_params(store.load(str(workdir)))
    tensors = safetensors_numpy.load_file(out / "model.safetensors")
    shapes = {name: array.shape for name, array in params.items()}
    back, report = import_params(tensors, bert_names.HUGGINGFACE, 2, shapes, "bert")
    assert back.keys() == params.keys() and not report.missing
    for name, array in params.items():
        assert back[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_an_export_is_the_same_after_an_import(export, tmp_path, task):
    workdir, out = export(task=task, heads=HEADS.get(task))
    run_command(["convert", "from_hf", str(out), str(tmp_path / "back"), "--nocomparison"])
    first, second = open_workdir(str(workdir)), open_workdir(str(tmp_path / "back"))
    assert first.params.keys() == second.params.keys()
    for name, array in first.params.items():
        assert array.tobytes() == second.params[name].tobytes(), name
    assert first.tokenizer.fingerprint == second.tokenizer.fingerprint
    run_command(
        ["convert", "to_hf", str(tmp_path / "back"), str(tmp_path / "again"), "--nocomparison"]
    )
    for name in FILES[1:]:
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes(), name


def test_transformers_saves_the_same_folder(export, tmp_path):
    """Byte for byte: the tensors that it would store, under its names, in its order."""
    _, out = export()
    load(out, "AutoModelForPreTraining").save_pretrained(tmp_path / "again")
    ours, theirs = (
        (folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "again")
    )
    assert ours == theirs
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    for name, value in json.loads((out / "config.json").read_text()).items():
        assert again[name] == value, name


@pytest.mark.parametrize("name", ["OpenAIGPTLMHeadModel", "ModernBertForMaskedLM"])
def test_other_models_are_read_back_by_transformers_and_here(save, tmp_path, name):
    folder, model = save(name)
    run = from_hf(folder)
    certificate = conversions.to_huggingface(str(tmp_path / "out"), str(tmp_path / "again"))
    assert certificate["class"] == name
    assert worst(certificate) < 1e-5
    again = load(tmp_path / "again", name)
    if name == "OpenAIGPTLMHeadModel":  # the special tokens of an import are pieces
        words = run.params["gpt/embeddings/word_embeddings/embedding"]
        np.testing.assert_array_equal(again.transformer.tokens_embed.weight.detach(), words)
        config = again.config
        assert (config.n_embd, config.n_layer, config.n_head, config.n_positions) == (16, 2, 2, 40)
        assert len(certificate["tensors"]["random"]) == 1
    else:
        theirs = dict(model.named_parameters())
        assert all(torch.equal(x, theirs[name]) for name, x in again.named_parameters())
        assert again.config.layer_types == model.config.layer_types
        assert again.config.rope_parameters == model.config.rope_parameters
        encoded = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")("the cat")
        ids = run.tokenizer.encode("the cat")
        assert encoded["input_ids"] == [run.tokenizer.cls_id, *ids, run.tokenizer.sep_id]
        assert "token_type_ids" not in encoded
    back = open_model(str(tmp_path / "again"))
    assert back.tokenizer.encode("the cat") == run.tokenizer.encode("the cat")
    assert (back.tokenizer.pieces, back.new_rows) == (run.tokenizer.pieces, {})
    for path, array in back.params.items():
        np.testing.assert_array_equal(array, run.params[path])


@pytest.mark.parametrize("task", ["pretraining", "tagging"])
def test_the_certificate_compares_what_was_written(make_workdir, tmp_path, random_params, task):
    workdir = make_workdir(task=task, heads=HEADS.get(task))
    certificate = conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert certificate == json.loads((tmp_path / "out" / "certificate.json").read_text())
    params = random_params(store.load(str(workdir)), **HEADS.get(task, {}))
    if task == "pretraining":
        assert certificate["weights_sha256"] == weights_sha256(params)
    assert certificate["class"] == CLASSES[task]
    assert certificate["tensors"]["in"] == len(params)
    assert "transformers" in certificate["comparison"]["with"]
    assert "hidden states" in certificate["comparison"]["largest_difference"]
    assert worst(certificate) < 1e-5


def test_rows_of_padding_and_unused_poolers_are_left_out_and_reported(export, capsys):
    _, out = export(task="span", heads=HEADS["span"], model__pad_vocab_to_multiple_of=50)
    tensors = safetensors_numpy.load_file(out / "model.safetensors")
    assert tensors["bert.embeddings.word_embeddings.weight"].shape == (64, 16)
    assert not any("pooler" in name for name in tensors)
    printed = capsys.readouterr().out
    assert "word_embeddings/embedding[64:]: 36 rows of padding" in printed
    assert "bert/pooler/kernel: BertForQuestionAnswering has no pooler" in printed


def test_a_run_with_sentencepiece_loads(export, sentencepiece_model):
    workdir, out = export(vocabulary=sentencepiece_model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ours = load_tokenizer(workdir / "vocab.model", lowercase=True)
    ids = ours.encode("It is said [MASK] jumps.", special_tokens=True)
    assert tokenizer("It is said [MASK] jumps.").input_ids == [ours.cls_id, *ids, ours.sep_id]
    assert tokenizer.mask_token_id == ours.mask_id and tokenizer.pad_token_id == ours.pad_id


@pytest.fixture
def sentencepiece_model(tmp_path) -> bytes:
    from bert_jax.text.vocabulary import count_words, train_vocabulary

    path = tmp_path / "trained.model"
    texts = ["The quick brown fox, it is said, jumps over the lazy dog; it sleeps."] * 5
    train_vocabulary("unigram", count_words("unigram", texts, lowercase=True), 64, path)
    return path.read_bytes()


def test_any_implementation_of_attention_is_exported(export):
    _, out = export(model__attention="dot_product", model__attention_dropout_rate=0.0)
    load(out, "AutoModelForPreTraining")
