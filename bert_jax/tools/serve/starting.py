"""Answers requests until the model can: with 503, and how far the start has come."""

from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bert_jax.tools.serve.page import waiting_page

# Seconds after which a client may ask again.
_RETRY_SECONDS = 5


class Starting:
    """The ASGI application while the model is loaded, and while its programs are compiled.

    Attributes:
      compiled: (number of compiled computations, number of all); None: the model is being loaded.
    """

    def __init__(self):
        self.compiled: tuple[int, int] | None = None
        self._page = waiting_page()

    @property
    def state(self) -> dict[str, Any]:
        """What GET /health returns, and every other address except the page's."""
        if self.compiled is None:
            state, phase = {"status": "loading"}, "The model is being loaded"
        else:
            done, of = self.compiled
            state = {"status": "compiling", "compiled": done, "of": of}
            phase = f"Programs are being compiled, {done} of {of} are done"
        return {**state, "error": f"{phase}: ask again in {_RETRY_SECONDS} s."}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"Retry-After": str(_RETRY_SECONDS)}
        if scope["path"] == "/":
            response: Response = HTMLResponse(self._page, 503, headers)
        else:
            response = JSONResponse(self.state, 503, headers)
        await response(scope, receive, send)
