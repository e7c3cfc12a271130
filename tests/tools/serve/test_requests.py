"""What is wrong with a request is said in one line of JSON, with a status of 4xx."""

import asyncio
import json

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.tools.serve.app import make_app
from bert_jax.tools.serve.batching import Batcher
from bert_jax.tools.serve.limits import Limits
from bert_jax.tools.serve.requests import Field, RequestError, parse_inputs
from tests.tools.serve.conftest import JSON, load, opened

LIMITS = Limits(rate=0, text_characters=50, inputs=3, body_bytes=2000)
FIELDS = Field("text_a"), Field("text_b", optional=True)
LIST = (Field("words", is_list=True),)


def parse(body, fields=FIELDS, **sizes):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_inputs(body, fields, LIMITS, **sizes)


def test_inputs():
    assert parse({"inputs": ["a", {"text_b": "c", "text_a": "b"}]}) == [
        {"text_a": "a"},
        {"text_a": "b", "text_b": "c"},
    ]
    assert parse({"inputs": [{"text_a": "", "text_b": None}]}) == [{"text_a": ""}]
    assert parse({"inputs": [{"words": ["a", "b"]}]}, LIST) == [{"words": ("a", "b")}]


@pytest.mark.parametrize(
    "body, message",
    [
        (b"\xff", "The body is not UTF-8 (byte 0)."),
        (b"", "The body is not JSON (Expecting value"),
        (b'{"inputs": [NaN]}', "The body is not JSON (NaN is no JSON number)."),
        (b'{"inputs": [], "inputs": []}', "The body is not JSON (an object has a field twice)."),
        (b"[" * 100_000, "The JSON of the body is nested too deeply."),
        (b"9" * 5000, "The body is not JSON (Exceeds the limit"),
        ([], 'The body is a list, and must be an object, {"inputs": [...]}.'),
        (None, "The body is null, and must be an object"),
        ({"input": []}, 'Unknown field "input": the body is {"inputs": [...]}.'),
        ({"x" * 99: 1}, f'Unknown field "{"x" * 40}..."'),
        ({}, "`inputs` is missing, and must be a list"),
        ({"inputs": "a"}, "`inputs` is a string, and must be a list"),
        ({"inputs": []}, "`inputs` has 0 elements; allowed: 1 to 3."),
        ({"inputs": ["a"] * 4}, "`inputs` has 4 elements; allowed: 1 to 3."),
        ({"inputs": ["a", 1]}, "inputs[1] is a number, and must be a string or an object of"),
        ({"inputs": [{"text": "a"}]}, 'inputs[0]: unknown field "text"; the fields are `text_a`'),
        ({"inputs": [{"\ud800": "a"}]}, 'inputs[0]: unknown field "\\ud800"'),
        ({"inputs": [{"text_b": "a"}]}, "inputs[0]: the field `text_a` is missing."),
        ({"inputs": [{"text_a": True}]}, "inputs[0].text_a is true, and must be a string."),
        ({"inputs": [{"text_a": {}}]}, "inputs[0].text_a is an object, and must be a string."),
        ({"inputs": ["a" * 51]}, "inputs[0].text_a has 51 characters; at most 50 are allowed"),
        ({"inputs": ["a\ud800"]}, "inputs[0].text_a has half of a surrogate pair"),
    ],
)
def test_a_wrong_body_is_refused(body, message):
    with pytest.raises(RequestError) as found:
        parse(body)
    assert found.value.message.startswith(message)
    assert 400 <= found.value.status < 500


@pytest.mark.parametrize(
    "words, message",
    [
        ("a b", "inputs[0].words is a string, and must be a list of strings."),
        (["a", 1], "inputs[0].words[1] is a number, and must be a string."),
        (["a" * 30] * 2, "inputs[0].words has 60 characters; at most 50 are allowed"),
    ],
)
def test_a_wrong_list_is_refused(words, message):
    with pytest.raises(RequestError) as found:
        parse({"inputs": [{"words": words}]}, LIST)
    assert found.value.message.startswith(message)


def test_the_number_of_inputs_of_an_ability():
    for inputs, sizes, allowed in ((["a"], {"least": 2}, "2 to 3"), (["a"] * 2, {"most": 1}, "1")):
        with pytest.raises(RequestError, match=f"allowed: {allowed}"):
            parse({"inputs": inputs}, **sizes)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(json_values | st.builds(lambda value: {"inputs": value}, json_values) | st.binary())
def test_any_body_is_parsed_or_refused(value):
    try:
        found = parse(value)
    except RequestError as error:
        assert 400 <= error.status < 500 and "\n" not in error.message
    else:
        assert all(isinstance(text, str) for item in found for text in item.values())


# ------------------------------------------------------------------ over HTTP


def refused(response, status, message):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"].startswith(message)
    assert response.headers["x-content-type-options"] == "nosniff"


def test_what_the_model_cannot_take(ask):
    for ability, inputs, message in (
        ("predict", ["the list"], "inputs[0] has no [MASK], and no `text_b` to compare"),
        ("predict", ["[MASK] " * 9], "inputs[0] has 9 [MASK]; at most 8 are allowed."),
        ("predict", ["[MASK]", "[MASK]" + " the" * 60], "inputs[1] has 63 tokens, special"),
        ("attention", ["the " * 60], "inputs[0] has 62 tokens, special ones included, and the"),
        ("attention", [""], "inputs[0] has no words."),
        ("features", ["the " * 60], "inputs[0] has 62 tokens"),
    ):
        status, answer = ask(ability, inputs)
        assert status == 400 and message in answer["error"], answer


@pytest.mark.parametrize(
    "name, inputs, message",
    [
        ("fast:tiny", [{"text_a": "a", "text_b": "b"}], "inputs[0] has no [MASK]."),
        ("tagging", [{"text": "a", "words": ["a"]}], "inputs[0] needs either `text` or `words`."),
        ("tagging", [" "], "inputs[0] has no words."),
        ("span", [{"question": " ", "context": "a"}], "inputs[0].question is empty."),
        ("multiple_choice", [{"context": "a", "endings": ["b"]}], "inputs[0].endings has 1 elem"),
        ("multiple_choice", [{"context": "a", "endings": ["b", ""]}], "inputs[0].endings has an"),
        (
            "classification",
            [{"text_a": "a", "text_b": "b"}],
            'inputs[0]: unknown field "text_b"; the fields are `text_a`.',
        ),
    ],
)
def test_what_a_task_cannot_take(name, inputs, message, make_run):
    with opened(load(make_run(name)[1])) as client:
        refused(client.post("/api/predict", json={"inputs": inputs}), 400, message)


def test_addresses_methods_and_types(client):
    refused(client.get("/etc/passwd"), 404, "There is no such address; there are /, /api, /api/p")
    refused(client.get("/api/predict"), 405, "The method GET is not allowed here, but POST.")
    assert client.get("/api/predict").headers["allow"] == "POST"
    refused(client.delete("/"), 405, "The method DELETE is not allowed here, but GET, HEAD.")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        response = client.post("/api/predict", content=b"{}", headers={"Content-Type": kind})
        refused(response, 415, "The Content-Type of the request must be application/json.")


def test_a_large_body(client):
    content = json.dumps({"inputs": ["the [MASK]" + "x" * (1 << 18)]}).encode()
    response = client.post("/api/predict", content=content, headers=JSON)
    refused(response, 413, "The body is larger than 262,144 bytes.")


@pytest.mark.parametrize(
    "headers, status, message",
    [
        ({"Host": "evil.example"}, 421, "The Host of the request is not this machine"),
        ({"Host": "127.0.0.1.evil.example:8000"}, 421, "The Host of the request"),
        ({"Origin": "http://evil.example"}, 403, "Pages of other sites may not ask"),
        ({"Origin": "null"}, 403, "Pages of other sites may not ask"),
        ({"Origin": "http://127.0.0.1:9000"}, 403, "Pages of other sites may not ask"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "Pages of other sites may not ask"),
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
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_this_machine_is_answered(client, headers):
    response = client.get("/api", headers=headers)
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def test_too_many_requests_of_a_client(pretrained):
    with opened(pretrained, Limits(rate=1)) as client:
        codes = [client.get("/api").status_code for _ in range(4)]
        assert codes == [200, 200, 429, 429]
        refused(client.get("/api"), 429, "Too many requests: wait 1 s.")
        assert client.get("/api").headers["retry-after"] == "1"


def test_too_many_requests_that_wait(pretrained):
    limits = Limits(rate=0, waiting=0)
    with opened(pretrained, limits) as client:
        response = client.post("/api/features", json={"inputs": ["the"]})
        refused(response, 503, "0 requests wait already: try again in a second.")
        assert response.headers["retry-after"] == "1"


def test_a_defect_is_no_traceback(pretrained, monkeypatch, capsys):
    def fail(examples):
        raise KeyError("a secret")

    vectors = next(a for a in pretrained.abilities if a.name == "features")
    monkeypatch.setattr(vectors.computation, "run", fail)
    with opened(pretrained) as client:
        response = client.post("/api/features", json={"inputs": ["the"]})
    assert response.status_code == 500
    assert response.json() == {"error": "The server failed on this request; its log says why."}
    assert "KeyError: 'a secret'" in capsys.readouterr().err


def test_a_body_that_does_not_arrive(pretrained):
    limits = Limits(rate=0, body_seconds=0.1)
    batcher = Batcher(1)

    async def body():
        yield b'{"inputs"'
        await asyncio.sleep(1)

    async def post():
        transport = httpx2.ASGITransport(make_app(pretrained, batcher, limits))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/api/predict", content=body(), headers=JSON)

    response = asyncio.run(post())
    batcher.close()
    assert response.status_code == 408
    assert response.json()["error"] == "The body did not arrive within 0.1 s."
