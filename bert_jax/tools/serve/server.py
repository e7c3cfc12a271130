"""The server: its socket, its announcement, and its end."""

import errno
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import uvicorn

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.batching import Batcher
from bert_jax.tools.serve.guard import Guard
from bert_jax.tools.serve.starting import Starting

if TYPE_CHECKING:
    from bert_jax.tools.serve.service import Service

# Seconds that requests in progress have at shutdown.
_SHUTDOWN_SECONDS = 60


def open_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that listens: connections wait until the server answers.

    Raises:
      UserError: the address cannot be used.
    """
    opened = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends at once (TCP_NODELAY) only if the socket states its protocol: otherwise an
        # answer waits 40 ms for the acknowledgment of its head.
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen()
        return opened
    except (OSError, UnicodeError) as error:
        if opened:
            opened.close()
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            fix = "give another --port, or --port=0 for a free one"
        else:
            fix = "--host must be an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        reason = getattr(error, "strerror", error)
        raise UserError(f"--host={host} --port={port} cannot be used ({reason}): {fix}.") from None


def is_local(opened: socket.socket) -> bool:
    """Returns whether only this machine can reach a socket."""
    return ipaddress.ip_address(opened.getsockname()[0]).is_loopback


def serve(
    load: Callable[[], "Service"],
    opened: socket.socket,
    warm: bool,
    max_waiting: int,
    rate: float,
    announce: Callable[[str], None],
) -> None:
    """Answers requests until SIGINT or SIGTERM, and then those that were accepted.

    Until the model is ready, it answers that it is not. A signal before that ends the process, with
    exit code 0.

    Args:
      load: loads the model and returns what it can do; called in the thread that runs the model.
      opened: result of `open_socket`.
      warm: whether all programs are compiled before the model is ready.
      max_waiting: requests that may wait for the model.
      rate: requests per second of one client; 0: any number.
      announce: called with a line when the server answers, when the model does, and at the end.

    Raises:
      UserError: the model cannot be loaded. Like every error of `load`, it ends the server.
    """
    host, port = opened.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    starting, batcher = Starting(), Batcher(max_waiting)
    guard = Guard(starting, rate, is_local(opened))

    def start() -> None:
        service = load()
        # Imports jax; the first answers need not wait for it.
        from bert_jax.tools.serve.app import make_app

        if warm:
            warm_up(service, starting, announce)
        guard.app = make_app(service, batcher, rate)
        announce(f"serving {service.name} at {address}")

    server = _make_server(guard)
    # uvicorn raises the signal that stopped it once more at the end: the exit code would not be 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    announce(f"listening  {address}")
    loading = batcher.run_first(start)
    loading.add_done_callback(server.end_after_error)
    server.run([opened])
    if loading.done() and (error := loading.exception()):
        raise error
    accepted = server.server_state.total_requests + server.lost
    announce(f"stopped    {accepted:,} requests accepted, {server.lost:,} without an answer")
    if not loading.done():
        os._exit(0)  # nothing interrupts it, and the interpreter would wait for its thread


def warm_up(service: "Service", starting: Starting, announce: Callable[[str], None]) -> None:
    """Compiles all programs that requests can need; otherwise requests compile theirs.

    Args:
      service: what the model can do.
      starting: shows how many are compiled.
      announce: called with a line for each endpoint.
    """
    programs = service.programs()
    done, of = 0, sum(map(len, programs.values()))
    for name, functions in programs.items():
        start = time.perf_counter()
        for compile_one in functions:
            starting.compiled = done, of
            compile_one()
            done += 1
        seconds = time.perf_counter() - start
        announce(f"compiled   {name}: {len(functions)} shapes, {seconds:.1f} s")


class _Server(uvicorn.Server):
    """uvicorn's server, which says how many requests it did not answer."""

    lost = 0

    def end_after_error(self, loading: Future[None]) -> None:
        if loading.exception():
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.lost = len(self.server_state.tasks)


def _make_server(app: Guard) -> _Server:
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        loop="asyncio",
        ws="none",
        lifespan="off",
        # The address of a client is that of its connection, whatever its headers say.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return _Server(config)
