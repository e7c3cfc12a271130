"""What is wrong with a request is said in one line of JSON, with a status of 4xx."""

import asyncio
import dataclasses
import json

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from bert_jax.files.errors import UserError
from bert_jax.tools.serve import requests
from bert_jax.tools.serve.requests import Field, parse_inputs
from tests.tools.serve.conftest import client_of

FIELDS = (
    Field("text_a"),
    Field("text_b", optional=True),
    Field("words", is_list=True, optional=True),
)
JSON = {"Content-Type": "application/json"}
ITEM = "a string or an object of `text_a`, `text_b`, `words`."
LONG = 20_001


def parse(body, **sizes):
    return parse_inputs(
        body if isinstance(body, bytes) else json.dumps(body).encode(), FIELDS, **sizes
    )


def test_the_columns_of_the_training_files_name_fields_too():
    columns = {"review": "text_a"}
    (found,) = parse({"inputs": [{"review": "a", "words": ["b"]}]}, columns=columns)
    assert found == {"text_a": "a", "words": ("b",)}
    with pytest.raises(UserError, match=r"inputs\[0\] has both 'review' and 'text_a'"):
        parse({"inputs": [{"review": "a", "text_a": "b"}]}, columns=columns)


@pytest.mark.parametrize(
    "body, message",
    [
        (b"\xff", "The body is not UTF-8 (byte 0): send JSON in UTF-8."),
        (b"", "The body is not JSON (Expecting value"),
        (
            b'{"inputs": [NaN]}',
            'The body is not JSON (NaN is not a JSON number): send {"inputs": [...]}.',
        ),
        (b"9" * 5000, "The body is not JSON (Exceeds the limit"),
        ([], 'The body is [], and must be {"inputs": [...]}.'),
        ({"input": []}, 'The body is {"input": []}, and must be'),
        ({"inputs": [], "x": 1}, 'The body is {"inputs": [], "x": 1}, and must be'),
        ({"inputs": []}, "`inputs` has 0 elements; allowed: 1 to 32."),
        ({"inputs": ["a", 1]}, f"inputs[1] is 1, and must be {ITEM}"),
        (
            {"inputs": [{"\ud800": "a"}]},
            'inputs[0]: unknown field "\\ud800"; the fields are `text_a`',
        ),
        ({"inputs": [{"text_b": "a"}]}, "inputs[0]: the field `text_a` is missing."),
        ({"inputs": [{"text_a": True}]}, "inputs[0].text_a is true, and must be a string."),
        ({"inputs": ["a" * LONG]}, "inputs[0].text_a has 20,001 characters; at most 20,000 are"),
        ({"inputs": ["a\ud800"]}, "inputs[0].text_a has half of a surrogate pair"),
        ({"inputs": [{"text_a": "", "words": "a"}]}, 'inputs[0].words is "a", and must be a list'),
        ({"inputs": [{"text_a": "", "words": [1]}]}, "inputs[0].words is [1], and must be a list"),
        (
            {"inputs": [{"text_a": "", "words": ["a" * 15_000] * 2}]},
            "inputs[0].words has 30,000 ch",
        ),
    ],
)
def test_a_wrong_body_is_refused(body, message):
    with pytest.raises((UserError, HTTPException)) as found:
        parse(body)
    assert getattr(found.value, "detail", str(found.value)).startswith(message)


def test_an_endpoint_limits_the_number_of_inputs():
    for inputs, sizes, allowed in (
        (["a"], {"min_inputs": 2}, "2 to 32"),
        (["a"] * 2, {"max_inputs": 1}, "1"),
    ):
        with pytest.raises(UserError, match=f"allowed: {allowed}[.]$"):
            parse({"inputs": inputs}, **sizes)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(json_values | st.builds(lambda value: {"inputs": value}, json_values) | st.binary())
def test_any_body_is_parsed_or_refused(value):
    try:
        found = parse(value)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert all(isinstance(item["text_a"], str) for item in found)


# ------------------------------------------------------------------ over HTTP


def refused(response, status, message):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"].startswith(message)
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "model, name, inputs, message",
    [
        ("masks", "predict", ["the list"], "inputs[0] has no [MASK], and no `text_b` to compare"),
        ("masks", "predict", ["[MASK] " * 9], "inputs[0] has 9 [MASK]; at most 8 are allowed."),
        ("masks", "predict", ["[MASK]", "[MASK]" + " the" * 60], "inputs[1] has 63 tokens"),
        ("masks", "attention", ["the " * 60], "inputs[0] has 62 tokens, special ones included"),
        ("masks", "attention", [""], "inputs[0] has no words: give at least one."),
        ("unpaired", "predict", [{"text_a": "a", "text_b": "b"}], "inputs[0] has no [MASK]: write"),
        ("tags", "predict", [{"text": "a", "words": ["a"]}], "inputs[0] needs either `text` or"),
        ("tags", "predict", [" "], "inputs[0] has no words: give at least one."),
        ("questions", "predict", [{"question": " ", "context": "a"}], "inputs[0].question is emp"),
        ("endings", "predict", [{"context": "a", "endings": ["b"]}], "inputs[0].endings has 1 el"),
        ("endings", "predict", [{"context": "a", "endings": ["b", ""]}], "inputs[0].endings[1] is"),
        ("classes", "predict", [{"text_a": "a", "text_b": "b"}], "inputs[0]: unknown field "),
    ],
)
def test_what_a_model_cannot_take_is_refused(model, name, inputs, message, models):
    client = client_of(models(model)[2])
    refused(client.post(f"/api/{name}", json={"inputs": inputs}), 400, message)


def test_addresses_methods_and_types(client):
    message = "There is no address /etc/passwd: GET /api lists all."
    refused(client.get("/etc/passwd"), 404, message)
    refused(client.get("/api/predict"), 405, "/api/predict does not take GET, but POST.")
    assert client.get("/api/predict").headers["allow"] == "POST"
    refused(client.delete("/"), 405, "/ does not take DELETE, but GET or HEAD.")
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = client.post("/api/predict", content=b"{}", headers={"Content-Type": kind})
        message = f"The Content-Type of the request is '{kind}', and must be application/json."
        refused(response, 415, message)


def test_large_bodies_and_texts_are_refused(client):
    content = json.dumps({"inputs": ["the [MASK]" + "x" * (1 << 18)]}).encode()
    response = client.post("/api/predict", content=content, headers=JSON)
    refused(response, 413, "The body is larger than 262,144 bytes: send fewer inputs.")
    response = client.post("/api/predict", json={"inputs": ["a" * LONG]})
    refused(response, 413, "inputs[0].text_a has 20,001 characters")


@pytest.mark.parametrize(
    "headers, status, message",
    [
        (
            {"Host": "evil.example"},
            421,
            "The Host of the request is 'evil.example', and must be one of 127.0.0.1, [::1], loc",
        ),
        ({"Host": "127.0.0.1.evil.example:8000"}, 421, "The Host of the request"),
        ({"Origin": "http://evil.example"}, 403, "Pages of other sites (http://evil.example) may"),
        ({"Origin": "null"}, 403, "Pages of other sites (null) may not ask"),
        ({"Origin": "http://127.0.0.1:9000"}, 403, "Pages of other sites (http://127.0.0.1:9000)"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "Pages of other sites (cross-site) may not ask"),
    ],
)
def test_other_sites_are_refused(client, headers, status, message):
    refused(client.get("/api", headers=headers), status, message)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "LocalHost:1234"},
        {"Host": "[::1]:8000"},
        {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_this_machine_is_answered(client, headers):
    response = client.get("/api", headers=headers)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


def test_too_many_requests_are_refused(models):
    client = client_of(models("masks")[2], rate=1)
    assert [client.get("/api").status_code for _ in range(3)] == [200, 200, 429]
    message = "Too many requests: wait 1 s, or start the server with more than --rate=1."
    refused(client.get("/api"), 429, message)
    assert client.get("/api").headers["retry-after"] == "1"
    response = client_of(models("masks")[2], max_waiting=0).post(
        "/api/encode", json={"inputs": ["the"]}
    )
    message = "0 requests wait already: try again in a second, or start the server with more than"
    refused(response, 503, message)
    assert response.headers["retry-after"] == "1"


def test_a_defect_is_no_traceback(models, monkeypatch, capsys):
    def fail(examples):
        raise KeyError("a secret")

    service = models("masks")[2]
    *others, features, _ = service.endpoints
    broken = dataclasses.replace(features.computation, run=fail)
    features = dataclasses.replace(features, computation=broken)
    monkeypatch.setattr(service, "endpoints", [*others, features])
    response = client_of(service).post("/api/encode", json={"inputs": ["the"]})
    refused(response, 500, "The server failed on this request; its log says why.")
    assert "KeyError: 'a secret'" in capsys.readouterr().err


def test_a_body_that_does_not_arrive_is_refused(models, monkeypatch):
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.1)

    async def body():
        yield b'{"inputs"'
        await asyncio.sleep(1)

    async def post():
        transport = httpx2.ASGITransport(client_of(models("masks")[2]).app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/api/predict", content=body(), headers=JSON)

    refused(asyncio.run(post()), 408, "The body did not arrive within 0.1 s.")
