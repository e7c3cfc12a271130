"""The application: its page, the description of the API, and an address for each endpoint."""

import asyncio
import functools
import traceback
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from bert_jax.files.errors import UserError
from bert_jax.tools.serve import forms, requests
from bert_jax.tools.serve.batching import Batcher
from bert_jax.tools.serve.endpoints import Endpoint
from bert_jax.tools.serve.guard import error_response
from bert_jax.tools.serve.openapi import describe_api
from bert_jax.tools.serve.page import serve_page
from bert_jax.tools.serve.service import Service


def make_app(service: Service, batcher: Batcher, rate: float) -> Starlette:
    """Returns the application.

    Args:
      service: what the model can do.
      batcher: computes the requests.
      rate: requests per second of one client, for the description; 0: any number.
    """
    views = [(f"/api/{e.name}", view) for e in service.endpoints for view in e.form.views]
    page = serve_page(service.name, service.about, views, service.missing)
    description = {
        "model": service.name,
        "about": service.about,
        "endpoints": {f"/api/{e.name}": e.describe() for e in service.endpoints},
        "missing": service.missing,
        "openapi": "/openapi.json",
        "limits": {
            "body_bytes": requests.MAX_BODY_BYTES,
            "text_characters": requests.MAX_CHARACTERS,
            "masks_of_a_text": forms.MAX_MASKS,
            "waiting_requests": batcher.max_waiting,
            "requests_per_second": rate or None,
        },
    }

    fixed = {
        "/": HTMLResponse(page),
        "/api": JSONResponse(description),
        "/health": JSONResponse({"status": "ready"}),
        "/openapi.json": JSONResponse(describe_api(service.name, service.about, service.endpoints)),
    }
    # A response is an application, which answers any number of requests.
    routes = [Route(path, answer, methods=["GET"]) for path, answer in fixed.items()]
    for endpoint in service.endpoints:
        answer = functools.partial(_answer, endpoint, batcher)
        routes.append(Route(f"/api/{endpoint.name}", answer, methods=["POST"]))
    handlers: dict[Any, Any] = {
        HTTPException: _show_http_error,
        UserError: _show_user_error,
        Exception: _show_defect,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


async def _answer(endpoint: Endpoint, batcher: Batcher, request: Request) -> Response:
    body = await _read_body(request)
    form, allowed = endpoint.form, (endpoint.min_inputs, endpoint.max_inputs)
    inputs = requests.parse_inputs(body, form.fields, *allowed, form.columns)
    examples = [form.make(values, f"inputs[{number}]") for number, values in enumerate(inputs)]
    results = await batcher.run(endpoint.computation, examples)
    return JSONResponse(endpoint.respond(results))


async def _read_body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Forms of other sites cannot send this type without asking for permission first.
    if kind != "application/json":
        message = f"The Content-Type of the request is {kind!r:.60}, and must be application/json."
        raise HTTPException(415, message)
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(requests.BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                # The rest is read too, so that the client gets to read the answer.
                if size <= requests.MAX_BODY_BYTES:
                    body += part
    except (TimeoutError, ClientDisconnect):
        message = f"The body did not arrive within {requests.BODY_SECONDS:g} s."
        raise HTTPException(408, message, {"Connection": "close"}) from None
    if size > requests.MAX_BODY_BYTES:
        message = f"The body is larger than {requests.MAX_BODY_BYTES:,} bytes: send fewer inputs."
        raise HTTPException(413, message)
    return bytes(body)


async def _show_http_error(request: Request, error: HTTPException) -> Response:
    message, path = error.detail, request.url.path
    if error.status_code == 404:
        message = f"There is no address {path:.100}: GET /api lists all."
    elif error.status_code == 405:
        allowed = " or ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"{path} does not take {request.method:.20}, but {allowed}."
    return error_response(error.status_code, message, error.headers)


async def _show_user_error(request: Request, error: UserError) -> Response:
    return error_response(400, str(error))


async def _show_defect(request: Request, error: Exception) -> Response:
    """Answers without details of a defect, which are on the server's standard error."""
    traceback.print_exception(error)
    return error_response(500, "The server failed on this request; its log says why.")
