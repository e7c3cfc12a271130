"""Answers are those of the commands for the same inputs, alone and with others."""

import json
import pathlib
import re

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.sampling import Sampling
from bert_jax.tools.outputs.features import extract
from bert_jax.tools.outputs.predictions import predict
from bert_jax.tools.serve.abilities import NEW_TOKENS
from bert_jax.training.workdir import CERTIFICATE
from tests.inference.conftest import make_texts
from tests.tools.serve.conftest import load, opened

TEXTS = make_texts(9)
QUESTION = {"question": "is una", "context": "the list is unaffable , naive . " * 3}
CHOICE = {"context": "the list", "start": "is", "endings": ["naive .", "unaffable", "returned"]}
# Configuration, further fields of it -> file of the same inputs for `predict`, inputs.
TASKS = {
    "masks": (
        "base",
        {"phases": ((40, 1.0),)},
        "jsonl",
        [{"text_a": "the [MASK] is [MASK]"}, {"text_a": "[MASK] is", "text_b": "the list ."}],
    ),
    "left_to_right": (
        "left_to_right",
        {"phases": ((40, 1.0),)},
        "jsonl",
        [{"text_a": text} for text in TEXTS],
    ),
    "classes": ("classification", {}, "txt", [{"text_a": text} for text in TEXTS]),
    "pairs": (
        "classification",
        {"data__text_b": "text_b"},
        "jsonl",
        [{"text_a": a, "text_b": b} for a, b in zip(TEXTS, TEXTS[1:], strict=False)],
    ),
    "value": (
        "classification",
        {
            "head__problem_type": "regression",
            "metrics": ("pearson",),
            "checkpoint__best_metric": "pearson",
        },
        "txt",
        [{"text_a": text} for text in TEXTS],
    ),
    "tags": ("tagging", {}, "txt", [{"text": text} for text in TEXTS]),
    "context": (
        "tagging",
        {"head__document_context": True},
        "txt",
        [{"text": text} for text in TEXTS],
    ),
    "questions": ("span", {}, "json", [QUESTION, {**QUESTION, "question": "naive"}]),
    "endings": ("multiple_choice", {}, "jsonl", [CHOICE, {**CHOICE, "context": "naive"}]),
}


def write(path, inputs):
    """Writes inputs in the form of a file of the task."""
    if path.suffix == ".txt":
        lines = [next(iter(item.values())) for item in inputs]
        path.write_text("".join(f"{line}\n" for line in lines))
    elif path.suffix == ".json":
        paragraphs = [
            {"context": item["context"], "qas": [{"id": str(i), "question": item["question"]}]}
            for i, item in enumerate(inputs)
        ]
        path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    else:
        names = {"context": "sent1", "start": "sent2"}
        rows = [{names.get(k, k): v for k, v in item.items()} for item in inputs]
        for row in rows:
            row |= {f"ending{i}": text for i, text in enumerate(row.pop("endings", []))}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def close(found, expected):
    """Asserts that JSON values are equal, numbers up to the rounding of float32."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for name in found:
            close(found[name], expected[name])
    elif isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=2e-5, abs=2e-6)
    else:
        assert found == expected


@pytest.mark.parametrize("name", TASKS)
def test_predictions_are_those_of_predict(name, make_run, tmp_path):
    config_name, changes, ending, inputs = TASKS[name]
    config, workdir = make_run(config_name, **changes)
    write(tmp_path / f"in.{ending}", inputs)
    predict(config, workdir, str(tmp_path / f"in.{ending}"), str(tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    expected = [{k: v for k, v in json.loads(line).items() if k != "id"} for line in lines]
    with opened(load(workdir)) as client:
        response = client.post("/api/predict", json={"inputs": inputs})
        assert response.status_code == 200, response.text
        together = response.json()["predictions"]
        # What was cut off is said for each input, which `predict` counts for the file.
        close([{k: v for k, v in one.items() if k != "counts"} for one in together], expected)
        for item, one in zip(inputs, together, strict=True):
            alone = client.post("/api/predict", json={"inputs": [item]}).json()
            close(alone, {"predictions": [one]})


def test_vectors_and_similarities_are_those_of_features(workdir, tmp_path, make_workdir):
    texts = [*TEXTS, "the list"]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    config = store.load(workdir)
    extractor = FeatureExtractor(Predictor(load_workdir(config, workdir)), Choice(level="sentence"))
    extract(extractor, str(tmp_path / "in.txt"), str(tmp_path / "out.npz"))
    expected = np.load(tmp_path / "out.npz")["embeddings"]
    with opened(load(workdir)) as client:
        found = client.post("/api/features", json={"inputs": texts}).json()["vectors"]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
        found = client.post("/api/similarity", json={"inputs": texts}).json()["similarity"]
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, units @ units.T, atol=1e-5)


def test_what_was_cut_off_is_said(make_run):
    _, workdir = make_run("classification")
    with opened(load(workdir)) as client:
        inputs = ["the list", "the " * 30]
        one, other = client.post("/api/predict", json={"inputs": inputs}).json()["predictions"]
    assert "counts" not in one
    assert other["counts"] == {"texts_truncated": 1, "tokens_cut_off": 30 - 22}


def test_texts_are_continued_as_by_generate(make_run):
    """A prompt that is padded, alone and with others."""
    sizes = {"phases": ((60, 1.0),), "model__max_position_embeddings": 60}
    config, workdir = make_run("left_to_right", **sizes)
    generator, prompts = (
        Generator(load_workdir(config, workdir)),
        ["the list is", "naive", "una " * 9],
    )
    greedy = Sampling(greedy=True)
    expected = [
        generator.text(prompt, new)
        for text in prompts
        for prompt, new in generator.generate(
            [generator.prompt(text, NEW_TOKENS)], greedy, max_new_tokens=NEW_TOKENS
        )
    ]
    with opened(load(workdir)) as client:
        found = client.post("/api/generate", json={"inputs": prompts}).json()
        assert found == {"texts": expected}
        assert len(set(expected)) == 3 and expected[0].startswith("the list is")
        error = client.post("/api/generate", json={"inputs": ["the " * 30]}).json()["error"]
        assert error == (
            "inputs[0] has 30 tokens, and texts of at most 29 are continued: shorten it."
        )


def test_attention_is_a_page(ask):
    status, answer = ask("attention", [{"text_a": "the [MASK] is", "text_b": "<b>naive"}])
    assert status == 200 and answer["page"].startswith("<!DOCTYPE html>")
    assert "&lt;b&gt;naive" in answer["page"] and "<b>naive" not in answer["page"]


def test_words_that_are_given_are_not_split(make_run):
    _, workdir = make_run("tagging")
    with opened(load(workdir)) as client:
        inputs = [{"words": ["the list", "is"]}]
        (found,) = client.post("/api/predict", json={"inputs": inputs}).json()["predictions"]
    assert found["words"] == ["the list", "is"] and len(found["tags"]) == 2


def test_a_model_without_a_head_has_features_and_attention(make_workdir):
    workdir = make_workdir(model__num_layers=1)
    fresh = {"tensors": {"fresh": ["masked_lm/bias"]}}
    pathlib.Path(workdir, CERTIFICATE).write_text(json.dumps(fresh))
    with opened(load(workdir)) as client:
        found = client.get("/api").json()
        assert list(found["abilities"]) == ["/api/similarity", "/api/features", "/api/attention"]
        assert "imported without a masked-LM head" in found["missing"]["predict"]
        assert "imported without a masked-LM head" in client.get("/").text
        assert client.post("/api/predict", json={"inputs": ["[MASK]"]}).status_code == 404
        found = client.post("/api/attention", json={"inputs": ["the list"]})
        assert "imported without a head" in found.json()["page"]


def test_the_description_names_abilities_and_limits(client):
    found = client.get("/api").json()
    assert list(found["abilities"]) == [
        "/api/predict",
        "/api/similarity",
        "/api/features",
        "/api/attention",
    ]
    predict = found["abilities"]["/api/predict"]
    assert predict["inputs"]["text_b"] == {"type": "string", "optional": True}
    assert found["limits"]["text_characters"] == 20_000
    assert re.fullmatch(r"bert for pretraining: 2 layers, hidden size 16", found["about"])
