"""The description of the API in OpenAPI's form, from which other programs generate clients."""

from collections.abc import Sequence
from typing import Any

from bert_jax.tools.serve import requests
from bert_jax.tools.serve.endpoints import Endpoint

# Of this API, not of the package.
_VERSION = "1"
_ERRORS = {
    400: "The body is not what the endpoint takes.",
    403: "A page of another site asks.",
    408: "The body did not arrive in time.",
    413: "The body or a text is too long.",
    415: "The Content-Type is not application/json.",
    421: "The request names another host.",
    429: "Too many requests of this client.",
    500: "The server failed on this request.",
    503: "The model is not ready, or too many requests wait.",
}


def describe_api(name: str, about: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the document of GET /openapi.json, OpenAPI 3.1.

    Args:
      name: the model's name.
      about: the model in a few words.
      endpoints: what it can be asked for.
    """
    health = {
        "summary": "Whether requests are answered.",
        "responses": {
            "200": {"description": "Ready."},
            "503": {"description": "Not ready; `status` is loading or compiling."},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "summary": about, "version": _VERSION},
        "paths": {
            "/health": {"get": health},
            **{f"/api/{e.name}": {"post": _operation(e)} for e in endpoints},
        },
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                }
            }
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    first, *_ = endpoint.form.fields
    text = {"type": "string", "description": f"The value of {first.name}."}
    inputs = {
        "type": "array",
        "items": {"anyOf": [_input_schema(endpoint), *([] if first.is_list else [text])]},
        "minItems": endpoint.min_inputs,
        "maxItems": endpoint.max_inputs,
    }
    body = {
        "type": "object",
        "properties": {"inputs": inputs},
        "required": ["inputs"],
        "additionalProperties": False,
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    found = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": body,
                    "example": endpoint.describe()["example"],
                }
            },
        },
        "responses": {
            "200": {"description": "A result for each input, in order.", "content": found},
            **{str(n): {"description": what, "content": error} for n, what in _ERRORS.items()},
        },
    }


def _input_schema(endpoint: Endpoint) -> dict[str, Any]:
    text = {"type": "string", "maxLength": requests.MAX_CHARACTERS}
    properties = {
        field.name: {"type": "array", "items": text} if field.is_list else text
        for field in endpoint.form.fields
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [field.name for field in endpoint.form.fields if not field.optional],
        "additionalProperties": False,
    }
