"""The server: its socket, its announcement, and its end."""

import contextlib
import ipaddress
import json
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.app import make_app
from bert_jax.tools.serve.batching import Batcher
from bert_jax.tools.serve.guard import Guard
from bert_jax.tools.serve.limits import Limits
from bert_jax.tools.serve.service import Service

# Seconds that requests in progress have at shutdown.
_PATIENCE = 60


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that does not listen yet: early, so that a taken port is reported early.

    Raises:
      UserError: the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends at once (TCP_NODELAY) only where the socket says its protocol: otherwise an
        # answer waits 40 ms for the receipt of its head.
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise UserError(
            f"--host={host} --port={port} cannot be used ({error.strerror}): give another --port,"
            " or --port=0 for a free one."
        ) from None
    return found


def address_of(opened: socket.socket) -> str:
    """Returns the address of the page."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    service: Service, opened: socket.socket, limits: Limits, announce: Callable[[str], None]
) -> None:
    """Answers requests until SIGINT or SIGTERM, and then those that were accepted.

    Args:
      service: warmed up.
      opened: of `open_socket`.
      limits: of requests.
      announce: gets a line when the server listens, and one when all is done.
    """
    batcher = Batcher(limits.waiting)
    app = make_app(service, batcher, limits)
    guard = Guard(app, limits.rate, is_loopback(opened.getsockname()[0]))
    config = uvicorn.Config(
        guard,  # pyright: ignore[reportArgumentType]
        http=_Protocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        # The address of a client is that of its connection, whatever it says.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=_PATIENCE,
    )
    line = f"serving {service.name} at {address_of(opened)}"
    _Server(config, lambda: announce(line)).run([opened])
    batcher.close()
    lost = guard.accepted - guard.answered
    announce(f"stopped    {guard.accepted:,} requests accepted, {lost:,} without an answer")


class _Server(uvicorn.Server):
    """uvicorn's server, which announces itself and ends without a signal."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]):
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which raises the signal again at the end: then the exit code is not 0."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit and number == signal.SIGINT
            self.should_exit = True

        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, stop) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Protocol(H11Protocol):
    """uvicorn's protocol, whose answer to what is not HTTP is JSON too."""

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"error": msg}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
