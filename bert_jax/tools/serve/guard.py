"""What stands before the application: headers, hosts, origins and rates of requests."""

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from bert_jax.tools.serve.limits import RateLimiter
from bert_jax.tools.serve.page import page_policy
from bert_jax.tools.serve.requests import RequestError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# Names of this machine that a browser may have in a request to a loopback address.
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}


def error_response(error: RequestError) -> JSONResponse:
    """Returns {"error": "..."} with the status and the headers of an error."""
    return JSONResponse({"error": error.message}, error.status, error.headers)


class Guard:
    """An ASGI application around another one.

    Attributes:
      accepted: requests that were begun.
      answered: requests whose answer was sent completely.
    """

    def __init__(self, app: App, rate: float, is_local: bool):
        """Args:
        app: that answers.
        rate: requests a second of one client, 0: any number.
        is_local: whether the server listens at a loopback address.
        """
        self.accepted = self.answered = 0
        self._app, self._limiter, self._is_local = app, RateLimiter(rate), is_local
        self._headers = {
            "Content-Security-Policy": f"{page_policy()}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.accepted += 1

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.answered += 1

        try:
            self._check(scope)
        except RequestError as error:
            await error_response(error)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        """Raises RequestError for a request from elsewhere, or one too many."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A page of another site whose name was made to point to this machine has its own name here.
        if self._is_local and _name(host) not in _LOCAL:
            raise RequestError(
                421, "The Host of the request is not this machine: open http://127.0.0.1."
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise RequestError(403, "Pages of other sites may not ask this server.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RequestError(403, "Pages of other sites may not ask this server.")
        client = scope.get("client") or ("", 0)
        if seconds := self._limiter.wait_for(client[0]):
            wait = str(math.ceil(seconds))
            raise RequestError(429, f"Too many requests: wait {wait} s.", {"Retry-After": wait})


def _name(host: str) -> str:
    """Returns "localhost" of "LOCALHOST:8000"."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
