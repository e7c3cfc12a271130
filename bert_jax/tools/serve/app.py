"""The application: its page, the description of the API, and an address for each ability."""

import asyncio
import functools
import json
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.abilities import Ability
from bert_jax.tools.serve.batching import Batcher, ClosedError, FullError, InputError
from bert_jax.tools.serve.guard import error_response
from bert_jax.tools.serve.limits import Limits
from bert_jax.tools.serve.page import serve_page
from bert_jax.tools.serve.requests import RequestError, parse_inputs
from bert_jax.tools.serve.service import Service

# A body that is too large is read up to this many times the limit, so that its sender gets to
# reading the answer.
_DRAINED = 64


def make_app(service: Service, batcher: Batcher, limits: Limits) -> Starlette:
    """Returns the application.

    Args:
      service: of the model.
      batcher: that runs its computations.
      limits: of requests.
    """
    views = [(f"/api/{a.name}", view) for a in service.abilities for view in a.form.views]
    page = serve_page(service.name, service.about, views, service.missing)
    description = describe(service, limits)

    async def show_page(request: Request) -> Response:
        return HTMLResponse(page)

    async def show_api(request: Request) -> Response:
        return JSONResponse(description)

    def asks(ability: Ability) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(_answer, ability=ability, batcher=batcher, limits=limits)

    routes = [Route("/", show_page), Route("/api", show_api)]
    routes += [Route(f"/api/{a.name}", asks(a), methods=["POST"]) for a in service.abilities]
    return Starlette(
        routes=routes,
        exception_handlers={
            RequestError: _show_error,
            HTTPException: functools.partial(_show_http_error, names=[r.path for r in routes]),
            ClientDisconnect: _show_nobody,
            Exception: _show_defect,
        },
    )


def describe(service: Service, limits: Limits) -> dict[str, Any]:
    """Returns what GET /api answers."""
    return {
        "model": service.name,
        "about": service.about,
        "abilities": {
            f"/api/{ability.name}": {
                "about": ability.about,
                "inputs": {field.name: field.describe() for field in ability.form.fields},
                "least_inputs": ability.least,
                "most_inputs": ability.most or limits.inputs,
                "example": {"inputs": ability.example},
            }
            for ability in service.abilities
        },
        "missing": service.missing,
        "limits": {
            "body_bytes": limits.body_bytes,
            "text_characters": limits.text_characters,
            "masks_of_a_text": limits.masks,
            "waiting_requests": limits.waiting,
            "requests_per_second": limits.rate or None,
        },
    }


async def _answer(
    request: Request, *, ability: Ability, batcher: Batcher, limits: Limits
) -> Response:
    body = await _read_body(request, limits)
    inputs = parse_inputs(body, ability.form.fields, limits, ability.least, ability.most)
    try:
        examples = [
            ability.form.make(values, f"inputs[{number}]") for number, values in enumerate(inputs)
        ]
        found = await asyncio.wrap_future(batcher.submit(ability.computation, examples))
    except (UserError, InputError) as error:
        raise RequestError(400, str(error)) from None
    except FullError:
        message = f"{limits.waiting} requests wait already: try again in a second."
        raise RequestError(503, message, {"Retry-After": "1"}) from None
    except ClosedError:
        raise RequestError(503, "The server is shutting down.", {"Retry-After": "10"}) from None
    content = json.dumps(ability.respond(found), ensure_ascii=False, allow_nan=False)
    return Response(content, media_type="application/json")


async def _read_body(request: Request, limits: Limits) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Forms of other sites cannot have this type without being asked for permission first.
    if kind != "application/json":
        raise RequestError(415, "The Content-Type of the request must be application/json.")
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= limits.body_bytes:
                    parts.append(part)
                elif size > _DRAINED * limits.body_bytes:
                    break
    except TimeoutError:
        seconds = f"{limits.body_seconds:g} s"
        raise RequestError(
            408, f"The body did not arrive within {seconds}.", {"Connection": "close"}
        ) from None
    if size > limits.body_bytes:
        raise RequestError(413, f"The body is larger than {limits.body_bytes:,} bytes.")
    return b"".join(parts)


async def _show_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error)


async def _show_http_error(request: Request, error: Exception, *, names: list[str]) -> Response:
    """Answers what no route takes: an unknown address, or another method."""
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 404:
        message = f"There is no such address; there are {', '.join(names)}."
    elif error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"The method {request.method[:20]} is not allowed here, but {allowed}."
    return error_response(RequestError(error.status_code, message, error.headers))


async def _show_nobody(request: Request, error: Exception) -> Response:
    """Answers a client that is gone."""
    return Response(status_code=400)


async def _show_defect(request: Request, error: Exception) -> Response:
    """Answers without details of a defect, which are on the server's standard error."""
    traceback.print_exception(error)
    return JSONResponse({"error": "The server failed on this request; its log says why."}, 500)
