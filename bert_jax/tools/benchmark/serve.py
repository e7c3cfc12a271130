"""Loads a server as `serve` starts it, sends wrong requests, and ends it in the middle of a load.

    python -m bert_jax benchmark serve --workdir=DIR

The clients are threads of another process, and share the machine with the server. Each keeps a
connection and waits for an answer before it asks again. The requests are the example of GET /api,
with its longest text 1 to 4 times. Latencies are those that clients see.
"""

import contextlib
import json
import multiprocessing
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.tools.benchmark.machine import describe_machine
from bert_jax.tools.benchmark.serve_load import NO_ANSWER, Outcome, load, make_bodies, send_wrong

CLIENTS = (1, 8, 64)
# Seconds of load before the server is ended.
_BEFORE_END = 3.0
_ENDLESS = 10_000_000
_COLUMNS = "{:>7} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9}"


@dataclass
class Server:
    """A server in a process of its own.

    Attributes:
      process: of the server.
      url: of its page.
    """

    process: subprocess.Popen
    url: str

    @property
    def memory(self) -> float:
        """Resident memory in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def run(workdir: str, ability: str, requests: int, many: int) -> None:
    """Prints the measurements.

    Args:
      workdir: of the model.
      ability: name of one; "": the first.
      requests: of each number of clients.
      many: requests that memory is watched over, and wrong ones.

    Raises:
      UserError: the server does not start, or has no such ability.
    """
    print(describe_machine())
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        with started(workdir) as server:
            path, inputs = _choose(server, ability)
            bodies = make_bodies(inputs)
            print(f"POST {path}, bodies of {', '.join(str(len(body)) for body in bodies)} bytes")

            def loaded(clients: int, count: int) -> Outcome:
                return executor.submit(load, server.url, path, bodies, clients, count).result()

            loaded(max(CLIENTS), 200)  # connections, buffers, caches
            _print_load(loaded, requests)
            before = server.memory
            loaded(8, many)
            print(f"memory  {before:,.1f} MiB, {server.memory:,.1f} MiB after {many:,} requests")
            _print_wrong(executor.submit(send_wrong, server.url, path, bodies[0], many).result())
            print(f"memory  {server.memory:,.1f} MiB after {many:,} wrong requests")
        with started(workdir) as server:  # which has counted no other requests
            _end(server, executor, path, bodies)


@contextlib.contextmanager
def started(workdir: str, *flags: str) -> Iterator[Server]:
    """Starts a server, and ends it if it still runs.

    Raises:
      UserError: it does not start.
    """
    command = [sys.executable, "-m", "bert_jax", "serve", f"--workdir={workdir}", "--port=0"]
    process = subprocess.Popen(
        [*command, "--rate=0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stderr
    try:
        for line in process.stdout:
            if found := re.match(r"serving .* at (http:\S+)$", line):
                yield Server(process, found[1])
                break
        else:
            raise UserError(f"The server did not start: {process.stderr.read().strip()}")
    finally:
        process.terminate()
        process.communicate()


def _choose(server: Server, name: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the address of an ability, and inputs for it."""
    with urllib.request.urlopen(f"{server.url}/api") as response:
        abilities = json.load(response)["abilities"]
    path = f"/api/{name}" if name else next(iter(abilities))
    if path not in abilities:
        known = ", ".join(path.removeprefix("/api/") for path in abilities)
        raise UserError(f"--ability={name} is none of {known}.")
    return path, abilities[path]["example"]["inputs"]


def _print_load(loaded: Callable[[int, int], Outcome], requests: int) -> None:
    print(
        _COLUMNS.format("clients", "requests", "requests/s", "p50 ms", "p95 ms", "p99 ms", "lost")
    )
    for clients in CLIENTS:
        outcome = loaded(clients, requests)
        good = outcome.statuses[200]
        times = [f"{1000 * outcome.percentile(p):.1f}" for p in (50, 95, 99)]
        speed = f"{good / outcome.seconds:,.1f}"
        print(_COLUMNS.format(clients, requests, speed, *times, requests - good), flush=True)


def _print_wrong(outcome: Outcome) -> None:
    counts = sorted(outcome.statuses.items(), key=lambda item: str(item[0]))
    shown = ", ".join(f"{count:,} x {status}" for status, count in counts)
    print(f"wrong   {sum(outcome.statuses.values()):,} requests: {shown}")
    for line in outcome.wrong[:10]:
        print(f"        not refused: {line}")


def _end(server: Server, executor: Executor, path: str, bodies: list[bytes]) -> None:
    """Ends the server while all clients ask, and compares its count with theirs."""
    clients = max(CLIENTS)
    future = executor.submit(load, server.url, path, bodies, clients, _ENDLESS)
    time.sleep(_BEFORE_END)
    start = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    outcome = future.result()
    answers = sum(count for status, count in outcome.statuses.items() if status != NO_ANSWER)
    output, _ = server.process.communicate()
    seconds = time.perf_counter() - start
    found = re.search(r"stopped +([\d,]+) requests accepted", output)
    accepted = int(found[1].replace(",", "")) if found else -1
    print(
        f"end     SIGTERM with {clients} clients: {sum(outcome.statuses.values()):,} requests,"
        f" {answers:,} answers, {accepted - answers} accepted without an answer, exit code"
        f" {server.process.returncode} after {seconds:.1f} s"
    )
