"""Server programs of object stores on the loopback address, and a network that can fail."""

import contextlib
import dataclasses
import importlib.util
import logging
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = {"s3": ("moto", "s3fs"), "gs": ("gcp_storage_emulator", "gcsfs")}
BUCKET = "bucket"
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_COMMANDS = {
    "s3": ["-m", "moto.server", "-H", "127.0.0.1", "-p"],
    "gs": ["-m", "tests.gcs_server"],
}
_ADDRESSES = {"s3": ("AWS_ENDPOINT_URL",), "gs": ("STORAGE_EMULATOR_HOST",)}
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # gcsfs would look for credentials, and ask by gRPC what kind of bucket it is.
    "FSSPEC_GCS_TOKEN": "anon",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
}


@dataclasses.dataclass
class Store:
    """A server with the bucket BUCKET.

    Attributes:
      scheme: gs or s3.
      port: of the server.
      environment: variables by which programs reach it.
    """

    scheme: str
    port: int
    environment: dict[str, str]
    _client: Any = None

    def at(self, port: int) -> dict[str, str]:
        """The variables by which programs reach it through another port."""
        return self.environment | dict.fromkeys(_ADDRESSES[self.scheme], f"http://127.0.0.1:{port}")

    def address(self, key: str) -> str:
        return f"{self.scheme}://{BUCKET}/{key}"

    def files(self) -> Any:
        """A client that keeps nothing in memory; made once, since that takes half a second."""
        import fsspec

        if self._client is None:
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
            options = {"use_listings_cache": False, "skip_instance_cache": True}
            self._client = fsspec.filesystem(self.scheme, **options)
        return self._client


@contextlib.contextmanager
def running(scheme: str, folder: pathlib.Path) -> Iterator[Store]:
    """Starts a server; its output goes to a file in `folder`. Skips where a package is missing."""
    for package in PACKAGES[scheme]:
        if not importlib.util.find_spec(package):
            pytest.skip(f"needs the extra test (the package {package})")
    port = free_port()
    environment = _CREDENTIALS | dict.fromkeys(_ADDRESSES[scheme], f"http://127.0.0.1:{port}")
    with open(folder / "server.txt", "w") as output, pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, *_COMMANDS[scheme], str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=output, cwd=REPOSITORY)
        try:
            for name, value in environment.items():
                patch.setenv(name, value)
            store = Store(scheme, port, environment)
            wait_for(port)
            store.files().mkdir(BUCKET)
            yield store
        finally:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.1)


class Network:
    """Passes connections on to a port, unless it is `down`."""

    def __init__(self, port: int):
        self.down = False
        self.refused = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client:
            if self.down:
                self.refused += 1
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                other = {client: server, server: client}
                while not self.down:
                    ready, _, _ = select.select(list(other), [], [], 0.05)
                    for source in ready:
                        if not (data := source.recv(1 << 16)):
                            return
                        other[source].sendall(data)

    def close(self) -> None:
        self._listener.close()


def another_machine(patch: pytest.MonkeyPatch, folder: pathlib.Path) -> pathlib.Path:
    """Makes this process one of a machine that has no copies yet; returns its cache folder."""
    from bert_jax.files import buckets

    number = len(os.listdir(folder))
    cache = folder / f"machine-{number}"
    cache.mkdir()
    patch.setenv("XDG_CACHE_HOME", str(cache))
    buckets.forget()
    return cache
