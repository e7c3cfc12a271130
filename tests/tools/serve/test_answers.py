"""Answers are those of the commands for the same inputs, alone and with others."""

import itertools
import json
import pathlib
import re

import jax
import numpy as np
import pytest

from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator, Sampling
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor
from bert_jax.tools.outputs.features import extract
from bert_jax.tools.outputs.inputs import find_inputs
from bert_jax.tools.serve.endpoints import NEW_TOKENS
from bert_jax.tools.serve.server import warm_up
from bert_jax.tools.serve.starting import Starting
from bert_jax.training.workdir import CERTIFICATE
from tests.inference.conftest import close, predict_file
from tests.tools.serve.conftest import client_of, load
from tests.tools.serve.models import MODELS, TEXTS, make_gpt, write


def ask(client, name, *inputs):
    """Returns the answer of an endpoint, without the name of its only field."""
    response = client.post(f"/api/{name}", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    (answer,) = response.json().values()
    return answer


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_predict(name, models, tmp_path):
    config, workdir, service = models(name)
    _, ending, inputs = MODELS[name]
    write(tmp_path / f"in.{ending}", inputs)
    predict_file(config, workdir, str(tmp_path / f"in.{ending}"), str(tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    expected = [{k: v for k, v in json.loads(line).items() if k != "id"} for line in lines]
    client = client_of(service)
    found = ask(client, "predict", *inputs)
    # What was cut off is said for each input, which `predict` counts for the file.
    close([{k: v for k, v in one.items() if k != "counts"} for one in found], expected)
    for item, one in zip(inputs, found, strict=True):
        close(ask(client, "predict", item), [one])


def test_vectors_and_similarities_are_those_of_features(models, tmp_path):
    texts = [*TEXTS, "the list"]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    _, workdir, service = models("masks")
    extractor = FeatureExtractor(Predictor(load_model(workdir)), Choice(level="sentence"))
    extract(extractor, find_inputs([f"{tmp_path}/in.txt"]), str(tmp_path / "out.npz"))
    expected = np.load(tmp_path / "out.npz")["embeddings"]
    client = client_of(service)
    np.testing.assert_allclose(ask(client, "encode", *texts), expected, rtol=2e-5, atol=2e-6)
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(ask(client, "similarity", *texts), units @ units.T, atol=1e-5)


def test_texts_are_continued_as_by_generate(models):
    # Pieces that end words, contractions and unknown characters.
    prompts = ["The list", "it isn't", "\u00e9\u4e2d"]
    _, workdir, service = models("gpt")
    generator = Generator(load_model(workdir))
    expected = [
        generator.text(prompt, new)
        for text in prompts
        for prompt, new in generator.generate(
            [generator.prompt(text, NEW_TOKENS)], Sampling(greedy=True), max_new_tokens=NEW_TOKENS
        )
    ]
    client = client_of(service)
    assert ask(client, "generate", *prompts) == expected
    error = client.post("/api/generate", json={"inputs": ["the " * 60]}).json()["error"]
    assert "has 60 tokens, and texts of at most 17 are continued" in error


def test_what_was_cut_off_is_said(models):
    one, other = ask(client_of(models("classes")[2]), "predict", "the list", "the " * 30)
    assert "counts" not in one
    assert other["counts"] == {"texts_truncated": 1, "tokens_cut_off": 30 - 22}


def test_words_that_are_given_are_not_split(models):
    (found,) = ask(client_of(models("tags")[2]), "predict", {"words": ["the list", "is"]})
    assert found["words"] == ["the list", "is"] and len(found["tags"]) == 2


# ------------------------------------------------------------------ what a model can do


@pytest.mark.parametrize(
    "name, endpoints, missing",
    [
        ("masks", ["predict", "similarity", "encode", "attention"], []),
        ("gpt", ["predict", "generate", "similarity", "encode", "attention"], []),
        ("elmo", ["predict", "similarity", "encode"], ["attention"]),
    ],
)
def test_the_description_names_endpoints_with_examples(name, endpoints, missing, models):
    client = client_of(models(name)[2])
    found = client.get("/api").json()
    assert list(found["endpoints"]) == [f"/api/{name}" for name in endpoints]
    assert list(found["missing"]) == missing
    assert found["endpoints"]["/api/encode"]["inputs"] == {
        "text_a": {"type": "string", "optional": False},
        "text_b": {"type": "string", "optional": True},
    }
    assert found["limits"]["text_characters"] == 20_000
    assert re.fullmatch(r"\w+ for \w+: \d layers?, hidden size \d+", found["about"])
    for address, endpoint in found["endpoints"].items():
        response = client.post(address, json=endpoint["example"])
        assert response.status_code == 200, (address, response.text)


@pytest.mark.parametrize("name", ["masks", "elmo"])
def test_the_openapi_document_says_what_the_api_takes(name, models):
    client = client_of(models(name)[2])
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    found = client.get("/api").json()["endpoints"]
    assert document["paths"].keys() == {"/health", *found}
    for address, endpoint in found.items():
        body = document["paths"][address]["post"]["requestBody"]["content"]["application/json"]
        assert body["example"] == endpoint["example"]
        inputs = body["schema"]["properties"]["inputs"]
        assert (inputs["minItems"], inputs["maxItems"]) == (
            endpoint["min_inputs"],
            endpoint["max_inputs"],
        )
        fields, *_ = inputs["items"]["anyOf"]
        assert fields["properties"].keys() == endpoint["inputs"].keys()
        optional = {field for field, about in endpoint["inputs"].items() if about["optional"]}
        assert {*fields["required"]} == fields["properties"].keys() - optional


def test_nothing_is_compiled_while_requests_wait(models, caplog):
    """Whatever the number of texts and their lengths."""
    service, starting, said = models("masks")[2], Starting(), []
    warm_up(service, starting, lambda line: said.append((line, starting.compiled)))
    # The vectors of encode are those of similarity.
    pattern = r"compiled   (predict|similarity|attention): (\d+) shapes, [\d.]+ s"
    found = [re.fullmatch(pattern, line) for line, _ in said]
    assert [match[1] for match in found] == ["predict", "similarity", "attention"]
    ends = list(itertools.accumulate(int(match[2]) for match in found))
    assert [compiled for _, compiled in said] == [(end - 1, ends[-1]) for end in ends]
    client = client_of(service)
    assert client.get("/health").json() == {"status": "ready"}
    jax.config.update("jax_log_compiles", True)
    try:
        for texts in itertools.product((2, 5, 32), (1, 7, 30)):
            inputs = [f"{'the ' * texts[1]}[MASK]"] * texts[0]
            ask(client, "predict", *inputs)
            ask(client, "similarity", *inputs)
            ask(client, "attention", inputs[0])
    finally:
        jax.config.update("jax_log_compiles", False)
    assert [record.msg for record in caplog.records] == []


def test_a_model_without_a_head_has_features_and_attention(make_workdir):
    workdir = make_workdir(model__num_layers=1)
    fresh = {"tensors": {"fresh": ["masked_lm/bias"]}}
    pathlib.Path(workdir, CERTIFICATE).write_text(json.dumps(fresh))
    client = client_of(load(workdir))
    found = client.get("/api").json()
    assert list(found["endpoints"]) == ["/api/similarity", "/api/encode", "/api/attention"]
    assert "imported without a masked-LM head" in found["missing"]["predict"]
    assert "imported without a masked-LM head" in client.get("/").text
    page = ask(client, "attention", {"text_a": "the list", "text_b": "<b>naive"})
    assert "imported without a head" in page and "<b>naive" not in page


def test_vectors_of_a_kind_that_is_not_computed_are_missing(make_workdir):
    workdir = make_workdir(model__num_layers=1)
    dense = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}
    pathlib.Path(workdir, "modules.json").write_text(json.dumps([dense]))
    service = load(workdir)
    assert [endpoint.name for endpoint in service.endpoints] == ["predict", "attention"]
    assert "pooling=mean, max or cls gives other vectors" in service.missing["encode"]


def test_too_few_positions_to_continue_texts_are_said(make_run):
    service = load(make_gpt(make_run, positions=24)[1])
    assert service.missing == {
        "generate": "Texts are not continued: 24 positions have no room for 30 more tokens."
    }
