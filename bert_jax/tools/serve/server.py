"""The server: its socket, its announcement, and its end."""

import ipaddress
import signal
import socket
from collections.abc import Callable

import uvicorn

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.app import make_app
from bert_jax.tools.serve.batching import Batcher
from bert_jax.tools.serve.service import Service

# Seconds that requests in progress have at shutdown.
_SHUTDOWN_SECONDS = 60


def open_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that does not listen yet: early, so that a taken port is reported early.

    Raises:
      UserError: the address cannot be used.
    """
    opened = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends at once (TCP_NODELAY) only where the socket says its protocol: otherwise an
        # answer waits 40 ms for the receipt of its head.
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        return opened
    except OSError as error:
        if opened:
            opened.close()
        raise UserError(
            f"--host={host} --port={port} cannot be used ({error.strerror}): give another --port,"
            " or --port=0 for a free one."
        ) from None


def is_local(opened: socket.socket) -> bool:
    """Returns whether only this machine can reach a socket."""
    return ipaddress.ip_address(opened.getsockname()[0]).is_loopback


def serve(
    service: Service,
    opened: socket.socket,
    max_waiting: int,
    rate: float,
    announce: Callable[[str], None],
) -> None:
    """Answers requests until SIGINT or SIGTERM, and then those that were accepted.

    With `service.compiled`, its programs are compiled first, while the server says so.

    Args:
      service: what the model can do.
      opened: result of `open_socket`.
      announce: gets a line when the server listens, and one when all is done.
    """
    batcher = Batcher(max_waiting)
    config = uvicorn.Config(
        make_app(service, batcher, rate, is_local(opened)),  # pyright: ignore[reportArgumentType]
        loop="asyncio",
        ws="none",
        lifespan="off",
        # The address of a client is that of its connection, whatever it says.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    host, port = opened.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    server = _Server(config, lambda: announce(f"serving {service.name} at http://{address}"))
    # uvicorn raises the signal that stopped it once more at the end: the exit code would not be 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    work = None
    if not service.is_ready:
        is_ending = lambda: server.should_exit  # noqa: E731
        work = batcher.run_first(lambda: service.warm_up(announce, is_ending))
        work.add_done_callback(lambda work: server.end_if(work.exception()))
    server.run([opened])
    if work and (error := work.exception()):
        raise error
    accepted = server.server_state.total_requests + server.lost
    announce(f"stopped    {accepted:,} requests accepted, {server.lost:,} without an answer")


class _Server(uvicorn.Server):
    """uvicorn's server, which announces itself and says which requests it did not answer."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]):
        super().__init__(config)
        self._announce, self.lost = announce, 0

    def end_if(self, error: BaseException | None) -> None:
        """Ends the server after an error of the programs that it compiles first."""
        self.should_exit |= error is not None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.lost = len(self.server_state.tasks)
