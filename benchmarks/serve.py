"""Loads a server with the requests of 1, 8 and 64 clients.

    python -m benchmarks.serve --model=MODEL

The clients are threads that share the machine with the server. Each keeps a connection and waits
for an answer before it asks again. The requests are the example of GET /api, with its longest text
1 to 4 times. Latencies are those that clients see.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import command
from benchmarks.side_by_side import describe_machine, table
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import MODEL, Flag

CLIENTS = (1, 8, 64)
_HEADERS = {"Content-Type": "application/json"}


FLAGS = (
    MODEL,
    Flag("endpoint", "", "Such as encode (default: the first that the model has)."),
    Flag("requests", 2_000, "Of each number of clients.", minimum=2),
)


def run(flags: argparse.Namespace) -> None:
    """Prints the table.

    Raises:
      UserError: the server does not start, or has no such endpoint.
    """
    print(describe_machine())
    with started(flags.model) as (_, url):
        path, inputs = choose(url, flags.endpoint)
        bodies = make_bodies(inputs)
        print(f"POST {path}, bodies of {', '.join(str(len(body)) for body in bodies)} bytes")
        load(url, path, bodies, max(CLIENTS), 200)  # connections, buffers, caches
        rows = {}
        for clients in CLIENTS:
            start = time.perf_counter()
            answered = load(url, path, bodies, clients, flags.requests)
            seconds = time.perf_counter() - start
            cuts = statistics.quantiles(answered, n=100, method="inclusive")
            times = [f"{1000 * cuts[percent - 1]:.1f}" for percent in (50, 95, 99)]
            lost = str(flags.requests - len(answered))
            rows[f"{clients} clients"] = (f"{len(answered) / seconds:,.1f}", *times, lost)
    print("\n".join(table(("requests/s", "p50 ms", "p95 ms", "p99 ms", "lost"), rows)))


@contextlib.contextmanager
def started(workdir: str, *flags: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Starts a server whose programs are compiled, yields its process and its address, and ends it.

    Raises:
      UserError: it does not start.
    """
    command = [sys.executable, "-m", "bert_jax", "serve", f"--model={workdir}", "--port=0"]
    process = subprocess.Popen(
        [*command, "--rate=0", "--warm", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stderr
    try:
        for line in process.stdout:
            if found := re.match(r"serving .* at (http:\S+)$", line):
                yield process, found[1]
                break
        else:
            raise UserError(f"The server did not start: {process.stderr.read().strip()}")
    finally:
        process.terminate()
        process.communicate()


def choose(url: str, name: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the address of an endpoint, and inputs for it."""
    with urllib.request.urlopen(f"{url}/api") as response:
        endpoints = json.load(response)["endpoints"]
    path = f"/api/{name}" if name else next(iter(endpoints))
    if path not in endpoints:
        known = ", ".join(path.removeprefix("/api/") for path in endpoints)
        raise UserError(f"--endpoint={name} is none of {known}.")
    return path, endpoints[path]["example"]["inputs"]


def make_bodies(inputs: Sequence[dict[str, Any]]) -> list[bytes]:
    """Returns bodies of different lengths: the longest text of each input 1 to 4 times."""
    bodies = []
    for times in range(1, 5):
        changed = []
        for item in inputs:
            texts = {name: text for name, text in item.items() if isinstance(text, str)}
            name = max(texts, key=lambda name: len(texts[name]))
            changed.append({**item, name: " ".join([texts[name]] * times)})
        bodies.append(json.dumps({"inputs": changed}).encode())
    return bodies


def load(url: str, path: str, bodies: Sequence[bytes], clients: int, requests: int) -> list[float]:
    """Sends requests from several clients until all are answered, or the server is gone.

    Args:
      url: URL of the server.
      path: path of an endpoint.
      bodies: sent one after the other, again and again.
      clients: concurrent clients.
      requests: number of all requests.

    Returns:
      The seconds of each answer with status 200.
    """
    waiting = itertools.islice(itertools.cycle(bodies), requests)
    lock, latencies = threading.Lock(), []
    address = urllib.parse.urlsplit(url).netloc

    def client() -> None:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=120)) as connection:
            while True:
                with lock:
                    body = next(waiting, None)
                if body is None:
                    return
                start = time.perf_counter()
                try:
                    connection.request("POST", path, body, _HEADERS)
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException):
                    return
                if response.status == 200:
                    latencies.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


if __name__ == "__main__":
    command.start("serve")
