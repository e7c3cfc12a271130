"""The exported graph gives our numbers in onnxruntime, for every part that a model can have."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax import exchange
from bert_jax.__main__ import main as run_command
from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.encoders import ElectraConfig, GptConfig, RobertaConfig
from bert_jax.config.group import rules
from bert_jax.devices.trees import flatten, unflatten
from bert_jax.exchange.loaded import example_batch, language_model
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import SentenceVectors
from bert_jax.models import complete_batch, make_encoder
from bert_jax.models.heads import WordScores
from bert_jax.tasks import default_config
from bert_jax.text.tokenizers import load_tokenizer, read_vocabulary
from tests import tiny
from tests.models.small import random_params
from tests.tools.convert.conftest import SIZES, VOCABULARY
from tests.tools.convert.documented import documented_code

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

# Fields of config.model. Together they have every part of an encoder.
ENCODERS = {
    "released": {"pad_vocab_to_multiple_of": 50},
    "modern": {
        **{"norm_place": "pre", "query_key_norm": True, "positions": "rotary"},
        **{"feed_forward": "gated", "biases": False, "type_vocab_size": 0, "activation": "gelu"},
    },
    "cheap": {
        **{"norm_place": "pre", "positions": "rotary", "type_vocab_size": 0, "convolution": 3},
        **{"activation": "relu_squared", "norm": "rms_norm", "lm_head": "tied"},
        **{"last_layer_predicted_only": True, "next_sentence": False, "rotary_base": 500.0},
    },
    "local": {
        **{"norm_place": "pre", "first_layer_norm": False, "positions": "sinusoidal"},
        **{"attention_pattern": "window", "attention_window": 2, "global_every": 2},
        **{"mask_value": -1e9, "num_layers": 3},
    },
    "no positions": {"positions": "none", "norm": "rms_norm", "convolution": 5, "remat": True}
    | {"predicts_next": True},
    "left to right": {
        **{"attention_pattern": "causal", "next_sentence": False},
        **{"attention": "dot_product", "attention_dropout_rate": 0.0},
    },
    "roberta": {"model": RobertaConfig()},
    "electra": {"model": ElectraConfig()},
}
# Fields that the forward pass does not read, or that are sizes.
_TRAINED = {
    *("name", "dropout_rate", "attention_dropout_rate", "initializer", "initializer_range"),
    *("dtype", "prng_impl", "remat_policy", "copy_head", "next_sentence", "attention"),
    "reads_forward",  # of a phase of training
}
# config.task and labels of each head.
HEADS = {
    "classification": ({"task": "classification", "task.pool": "max"}, "a b c"),
    "regression": (
        {
            **{"task": "classification", "task.problem_type": "regression"},
            **{"metrics": ("pearson",), "task.pool": "mean", "task.layers": "scalar_mix"},
        },
        "",
    ),
    "both orders": ({"task": "classification", "task.both_orders": True}, "a b"),
    "last token": ({"task": "classification", "task.pool": "last", "task.pooler": False}, "a b"),
    "tagging": (
        {"task": "tagging", "task.layers": "concat_last_4", "model.num_layers": 4},
        "O B-X I-X",
    ),
    "crf": (
        {"task": "tagging", "task.head": "crf", "task.layers": "mix_with_embeddings"},
        "O B-X I-X",
    ),
    "span": ({"task": "span"}, ""),
    "multiple choice": ({"task": "multiple_choice", "task.text_a": "context"}, ""),
}
LENGTHS = (5, 1, 17, 40)
# (rows, length) of the batches that are computed.
BATCHES = ((slice(0, 2), 5), (slice(0, 3), 19), (slice(3, 4), 40))


@pytest.fixture
def make(tmp_path):
    """Returns a function (fields, labels, random parameters) -> a model in memory."""
    (tmp_path / "vocab.txt").write_text(VOCABULARY)

    def make(labels: str = "", model=None, **values):
        is_causal = model is not None and model.is_causal
        is_causal = is_causal or values.get("model.attention_pattern") == "causal"
        config = default_config(values.pop("task", "causal_lm" if is_causal else "pretraining"))
        sizes = {f"model.{name}": size for name, size in SIZES.items()}
        rows = tiny.rows_of(config, SIZES["max_position_embeddings"])
        more = {"model": model} if model is not None else {}
        config = config.replace({**sizes, **rows, **values}, **more)
        path = str(tmp_path / "vocab.txt")
        tokenizer, names = load_tokenizer(path, True), tuple(labels.split())
        loaded = exchange.LoadedModel(
            "a run", config, {}, tokenizer, read_vocabulary(path), labels=names
        )
        module, batch = module_of(loaded)
        return dataclasses.replace(loaded, params=flatten(random_params(module, batch)))

    return make


def module_of(loaded):
    """Returns the module that was trained, and a batch that it takes."""
    config, row = loaded.config, loaded.config.task
    if not row.HEAD:
        module = language_model(config.model)
        return module, example_batch(config.model)
    task = row.with_labels(loaded.labels).bind(config.model, loaded.tokenizer)
    return task.make_model(), task.example_batch()


def make_inputs(sequences: int = 0) -> dict[str, np.ndarray]:
    """int32[4, 40], or [4, sequences, 40], of the rows of LENGTHS."""
    rng, place = np.random.default_rng(1), np.arange(max(LENGTHS))
    lengths = np.array(LENGTHS)[:, None]
    if sequences:
        lengths = np.repeat(lengths[:, None], sequences, axis=1)
    mask = place < lengths
    ids = np.where(mask, rng.integers(5, 57, mask.shape), 0)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask & (place > 3)}
    return {name: array.astype(np.int32) for name, array in inputs.items()}


def check(loaded, folder, expected, sequences: int = 0, **choices):
    """Exports a model, and compares its outputs for several sizes with arrays of all rows."""
    facts = exchange.export(loaded, "onnx", folder, **choices)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    assert {x.name: x.shape for x in session.get_outputs()} == facts["outputs"]
    assert facts["outputs"].keys() == expected.keys()
    everything = make_inputs(sequences)
    for rows, length in BATCHES:
        inputs = {x.name: everything[x.name][rows, ..., :length] for x in session.get_inputs()}
        long = {name: array.astype(np.int64) for name, array in inputs.items()}
        outputs = session.run(list(expected), long)
        is_token = inputs["attention_mask"] > 0
        for name, found in zip(expected, outputs, strict=True):
            wanted = np.asarray(expected[name])[rows]
            if facts["outputs"][name][1:2] == ["seq"]:  # padding has no values
                found, wanted = found[is_token], wanted[:, :length][is_token]
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5, err_msg=name)
    return facts


def apply(loaded, **fields):
    """Returns the outputs of the trained module for all rows, in float32."""
    module, _ = module_of(loaded)
    sequences = {"multiple_choice": 3}.get(loaded.config.task.name, 2 * both_orders(loaded))
    batch = complete_batch(make_inputs(sequences) | fields)
    variables = {"params": unflatten(loaded.params)}
    return jax.jit(lambda batch: module.apply(variables, batch, deterministic=True))(batch), batch


def both_orders(loaded) -> bool:
    return bool(loaded.config.get("task.both_orders", False))


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_gives_our_logits(name, make, tmp_path):
    changes = dict(ENCODERS[name])
    model = changes.pop("model", None)
    loaded = make(model=model, **{f"model.{field}": value for field, value in changes.items()})
    outputs, _ = apply(loaded, masked_lm_positions=np.tile(np.arange(40), (4, 1)))
    if isinstance(outputs, WordScores):
        expected = {"logits": outputs.logits()}
    else:
        expected = {"logits": outputs.masked_lm_logits}
        if outputs.next_sentence_logits is not None:
            expected["next_sentence_logits"] = outputs.next_sentence_logits[:, 0]
    expected["logits"] = expected["logits"][..., : SIZES["vocab_size"]]
    check(loaded, tmp_path / "out", expected)
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    names = [x.name for x in session.get_inputs()]
    assert sorted(settings["model_input_names"]) == sorted(names)


def test_every_choice_of_an_encoder_is_among_them():
    seen = [{**vars(TransformerConfig()), **changes} for changes in ENCODERS.values()]
    for name, rule in rules(TransformerConfig).items():
        if name in _TRAINED or name in SIZES:
            continue
        values = {fields[name] for fields in seen}
        default = getattr(TransformerConfig(), name)
        if rule.choices or isinstance(default, bool):
            assert values >= set(rule.choices or (True, False)), name


@pytest.mark.parametrize("name", HEADS)
def test_every_head_gives_our_outputs(name, make, tmp_path):
    values, labels = HEADS[name]
    values = {"model.num_layers": 1, "model.hidden_size": 8} | values
    loaded = make(labels, **values)
    positions = np.tile(np.arange(40), (4, 1))
    is_word = make_inputs()["attention_mask"] > 0
    words = {"word_positions": positions, "is_word": is_word, "word_sizes": np.ones_like(positions)}
    fields = words if "tagging" in values["task"] else {}
    outputs, _ = apply(loaded, **fields)
    names = ("logits",) if hasattr(outputs, "logits") else ("start_logits", "end_logits")
    expected = {output: getattr(outputs, output) for output in names}
    sequences = 3 if values["task"] == "multiple_choice" else 2 * both_orders(loaded)
    facts = check(loaded, tmp_path / "out", expected, sequences)
    assert tuple(facts["outputs"]) == names
    assert facts["labels"] == labels.split()
    assert ("transitions" in facts) == (name == "crf")


@pytest.mark.parametrize("pooling, normalize", [("max", False), ("cls", False), ("", True)])
def test_sentence_vectors(pooling, normalize, make, tmp_path):
    loaded = make(**{"model.copy_head": True, "model.num_layers": 1})
    encoder, inputs = make_encoder(loaded.model), make_inputs()
    params = unflatten(loaded.params)["bert"]
    hidden = np.asarray(encoder.apply({"params": params}, complete_batch(dict(inputs))).hidden)
    pool = {"max": lambda x: x.max(0), "cls": lambda x: x[0]}.get(pooling, lambda x: x.mean(0))
    vectors = np.stack([pool(x[:n]) for x, n in zip(hidden, LENGTHS, strict=True)])
    if normalize:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = {"last_hidden_state": hidden, "sentence_embedding": vectors}
    choices = {"output": "vectors", "vectors": SentenceVectors(pooling, normalize)}
    check(loaded, tmp_path / "out", expected, **choices)


# Changes of the configuration, options of the export, and the message.
REFUSED = [
    ({"model.copy_head": True}, {}, "config.model.copy_head=True: other programs"),
    ({}, {"output": "logits"}, "output='logits' must be one of task, vectors"),
    (
        {"task": "tagging", "task.head": "bilstm_crf", "task.lstm_size": 8},
        {},
        "was trained with a head 'bilstm_crf', which is not exported",
    ),
]


@pytest.mark.parametrize("values, choices, message", REFUSED)
def test_what_cannot_be_exported_is_refused(values, choices, message, make, tmp_path):
    loaded = make("O B-X I-X" if "task" in values else "", **values)
    with pytest.raises(UserError, match=message):
        exchange.export(loaded, "onnx", tmp_path / "out", **choices)
    assert not (tmp_path / "out").exists()


def test_headless_models_are_vectors_and_elmo_and_missing_packages_named(
    make, tmp_path, monkeypatch
):
    loaded = make(**{"model.num_layers": 1})

    def check(message, loaded=loaded, **choices):
        with pytest.raises(UserError, match=message):
            exchange.export(loaded, "onnx", tmp_path / "refused", **choices)

    headless = dataclasses.replace(loaded, missing=("masked_lm/bias",))
    check("has no trained head for output='task': fine-tune it", headless, output="task")
    assert exchange.export(headless, "onnx", tmp_path / "out")["output"] == "vectors"
    elmo = dataclasses.replace(loaded, config=default_config("bidirectional_lm"))
    check("a run is a model of the kind 'elmo', which reads the char", elmo)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check(r"needs a package, onnx: pip install 'bert_jax\[onnx\]'")


def test_the_documented_code_runs_without_this_package(make_workdir, tmp_path):
    pytest.importorskip("tokenizers")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the of list is returned ."
    workdir = make_workdir(vocabulary="\n".join(words.split()), model__vocab_size=11)
    run_command(["convert", "to_onnx", str(workdir), str(tmp_path / "quickstart-onnx")])
    absent = "sys.modules.update(dict.fromkeys(('bert_jax', 'jax', 'torch')))"
    code = f"import sys; {absent}\n{documented_code('onnxruntime')}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.replace("'", '"'))) == 5, done.stdout


def test_a_gpt_with_a_head_reads_framed_texts(make, tmp_path):
    """As in training; only text that is continued has no [CLS] and [SEP]."""
    values = {"task.pool": "last", "task.pooler": False}
    for task, is_framed in (("classification", True), ("causal_lm", False)):
        loaded = make("a b", GptConfig(), task=task, **(values if is_framed else {}))
        exchange.export(loaded, "onnx", tmp_path / task)
        content = json.loads((tmp_path / task / "tokenizer.json").read_text())
        assert bool(content["post_processor"]) == is_framed
