"""What stands before the application: headers, hosts, origins and request rates."""

import math
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bert_jax.tools.serve.page import page_policy

# Names of this machine that a browser may have in a request to a loopback address.
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}
# Number of clients whose requests are counted.
_MAX_CLIENTS = 10_000


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Returns {"error": MESSAGE}, on one line."""
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


class Guard:
    """An ASGI application that passes requests on to another one, or refuses them.

    Attributes:
      app: the other one, which may be replaced while requests arrive.
    """

    def __init__(self, app: ASGIApp, rate: float, is_local: bool):
        """Makes the application.

        Args:
          app: see above.
          rate: requests per second of one client; 0: any number.
          is_local: whether the server listens at a loopback address.
        """
        self.app, self._limiter, self._is_local = app, RateLimiter(rate), is_local
        self._headers = {
            "Content-Security-Policy": f"{page_policy()}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        app = self._refusal(scope) or self.app
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Returns the answer to a request from elsewhere, or to one too many."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name, colon, port = host.rpartition(":")
        name = name if colon and port.isdecimal() else host
        # A page of another site whose name was made to resolve to this machine sends that name.
        if self._is_local and name.lower() not in _LOCAL:
            names = ", ".join(sorted(_LOCAL))
            return error_response(
                421, f"The Host of the request is {host!r:.60}, and must be one of {names}."
            )
        origin = headers.get("origin", f"://{host}").partition("://")[2]
        site = headers.get("sec-fetch-site", "none")
        if origin != host or site not in ("none", "same-origin"):
            where = headers.get("origin", site)
            return error_response(
                403, f"Pages of other sites ({where:.60}) may not ask this server: open its own."
            )
        if seconds := self._limiter.wait_for((scope.get("client") or [""])[0]):
            wait = str(math.ceil(seconds))
            message = (
                f"Too many requests: wait {wait} s, or start the server with more than"
                f" --rate={self._limiter.rate:g}."
            )
            return error_response(429, message, {"Retry-After": wait})
        return None


class RateLimiter:
    """Counts the requests of each client, which has a bucket of 2 * `rate` tokens.

    A request takes a token, and `rate` tokens per second flow back; 0: any number of requests.
    """

    def __init__(self, rate: float):
        self.rate = rate
        # Client -> when its bucket is full again.
        self._full: dict[str, float] = {}

    def wait_for(self, client: str) -> float:
        """Counts a request and returns 0; or returns the seconds until the next is allowed."""
        if not self.rate:
            return 0.0
        now = time.monotonic()
        full = max(now, self._full.get(client, now)) + 1 / self.rate
        if (wait := full - now - max(1.0, 2 * self.rate) / self.rate) > 1e-9:
            return wait
        if len(self._full) >= _MAX_CLIENTS:
            self._full.clear()
        self._full[client] = full
        return 0.0
