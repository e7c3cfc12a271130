"""Clients of a server: right requests, wrong ones, and what became of each.

These functions run in a process of their own. A client is a thread with a connection that it keeps;
it sends a request when it has the answer to the one before.
"""

import dataclasses
import http.client
import itertools
import json
import random
import socket
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.files.errors import UserError

_HEADERS = {"Content-Type": "application/json"}
# What an answer without a status counts as.
NO_ANSWER = "no answer"
_TIMEOUT = 120.0


@dataclasses.dataclass
class Outcome:
    """What became of requests.

    Attributes:
      seconds: from the first request to the last answer.
      latencies: seconds of each answer of 200, ascending.
      statuses: how many answers had which status; `NO_ANSWER`: none.
      wrong: the first answers that were not allowed.
    """

    seconds: float = 0.0
    latencies: list[float] = dataclasses.field(default_factory=list)
    statuses: Counter = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def percentile(self, percent: float) -> float:
        """Returns the latency that `percent` of the answers do not exceed."""
        place = max(0, -(-len(self.latencies) * percent // 100) - 1)
        return self.latencies[int(place)]


def load(url: str, path: str, bodies: Sequence[bytes], clients: int, requests: int) -> Outcome:
    """Sends requests from several clients until all are answered, or the server is gone.

    Args:
      url: of the server.
      path: of an ability.
      bodies: sent one after the other, again and again.
      clients: at a time.
      requests: in all.
    """
    outcome, lock = Outcome(), threading.Lock()
    numbers = iter(range(requests))

    def client() -> None:
        connection = _connect(url)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            start = time.perf_counter()
            try:
                connection.request("POST", path, bodies[number % len(bodies)], _HEADERS)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException):
                with lock:
                    outcome.statuses[NO_ANSWER] += 1
                break
            with lock:
                outcome.statuses[response.status] += 1
                if response.status == 200:
                    outcome.latencies.append(time.perf_counter() - start)
        connection.close()

    begin = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome.seconds = time.perf_counter() - begin
    outcome.latencies.sort()
    return outcome


def make_bodies(inputs: Sequence[dict[str, Any]]) -> list[bytes]:
    """Returns bodies of different lengths: the longest text of the inputs 1 to 4 times."""
    bodies = []
    for times in range(1, 5):
        changed = [dict(item) for item in inputs]
        for item in changed:
            texts = {name: text for name, text in item.items() if isinstance(text, str)}
            name = max(texts, key=lambda name: len(texts[name]))
            item[name] = " ".join([texts[name]] * times)
        bodies.append(json.dumps({"inputs": changed}).encode())
    return bodies


# ------------------------------------------------------------------ wrong requests


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A request that a server must refuse; with `raw` bytes instead of HTTP if there are any."""

    method: str = "POST"
    path: str = ""
    body: bytes = b""
    headers: dict[str, str] = dataclasses.field(default_factory=lambda: dict(_HEADERS))
    raw: bytes = b""


def wrong_requests(path: str, body: bytes, requests: int, seed: int = 0) -> list[Wrong]:
    """Returns requests of all WRONG kinds in turn, each mutated from a right one at random."""
    rng = random.Random(seed)
    kinds = itertools.cycle(WRONG.values())
    return [next(kinds)(rng, path, body) for _ in range(requests)]


def _values(rng: random.Random, path: str, body: bytes) -> Wrong:
    junk: list[Any] = [None, True, 1, -1e300, "", "x", [], {}, [[]], [None], [{}], [1, "a"]]
    junk += [[{"": 1}], [{"text_a": rng.random()}], [{"text_a": ["a"]}], [["a"]], ["a"] * 99]
    value = rng.choice(junk)
    if value == "x" or rng.random() < 0.5:
        return Wrong(path=path, body=json.dumps(value).encode())
    return Wrong(path=path, body=json.dumps({"inputs": value, "more": 1}).encode())


def _type(rng: random.Random, path: str, body: bytes) -> Wrong:
    inputs = json.loads(body)["inputs"]
    name = rng.choice(sorted(inputs[0]))
    inputs[0][name] = rng.choice([0, 1.5, True, {}, [[]], [0], {"a": []}, [None]])
    return Wrong(path=path, body=json.dumps({"inputs": inputs}).encode())


def _field(rng: random.Random, path: str, body: bytes) -> Wrong:
    inputs = json.loads(body)["inputs"]
    inputs[0][rng.choice(["path", "__class__", "workdir", "\0", "\ud800", "x" * 500])] = "/etc"
    return Wrong(path=path, body=json.dumps({"inputs": inputs}).encode())


def _cut(rng: random.Random, path: str, body: bytes) -> Wrong:
    return Wrong(path=path, body=body[: rng.randrange(len(body))])


def _byte(rng: random.Random, path: str, body: bytes) -> Wrong:
    place = rng.randrange(len(body))
    return Wrong(path=path, body=body[:place] + bytes([rng.randrange(128, 256)]) + body[place:])


def _number(rng: random.Random, path: str, body: bytes) -> Wrong:
    number = rng.choice([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 9999, b"01", b"+1"])
    return Wrong(path=path, body=b'{"inputs": [' + number + b"]}")


def _deep(rng: random.Random, path: str, body: bytes) -> Wrong:
    depth = rng.randrange(500, 40_000)
    opening, closing = rng.choice([(b"[", b"]"), (b'{"inputs":', b"}")])
    return Wrong(path=path, body=opening * depth + b"1" + closing * depth)


def _text(rng: random.Random, path: str, body: bytes) -> Wrong:
    inputs = json.loads(body)["inputs"]
    name = next(name for name, value in inputs[0].items() if isinstance(value, str))
    inputs[0][name] = rng.choice(["a " * 12_000, "x" * 30_000, "\ud800", "\udfff" * 9])
    return Wrong(path=path, body=json.dumps({"inputs": inputs}).encode())


def _large(rng: random.Random, path: str, body: bytes) -> Wrong:
    return Wrong(path=path, body=body + b" " * rng.randrange(1 << 18, 1 << 20))


def _noise(rng: random.Random, path: str, body: bytes) -> Wrong:
    return Wrong(path=path, body=b"\xff" + rng.randbytes(rng.randrange(400)))


def _method(rng: random.Random, path: str, body: bytes) -> Wrong:
    method = rng.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "FOO"])
    return Wrong(method, path, body)


def _address(rng: random.Random, path: str, body: bytes) -> Wrong:
    names = ["/../../etc/passwd", "/api/../api", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"]
    names += ["/api/predict/x", "/api/__init__", "/static/..%5c..%5c", "/%00", "/" + "a" * 3000]
    return Wrong(rng.choice(["GET", "POST"]), rng.choice(names), body)


def _header(rng: random.Random, path: str, body: bytes) -> Wrong:
    name, value = rng.choice(
        [
            ("Content-Type", "text/plain"),
            ("Content-Type", "multipart/form-data; boundary=x"),
            ("Host", "evil.example"),
            ("Host", "localhost.evil.example:80"),
            ("Origin", "http://evil.example"),
            ("Origin", "null"),
            ("Sec-Fetch-Site", "cross-site"),
        ]
    )
    return Wrong(path=path, body=body, headers={**_HEADERS, name: value})


def _protocol(rng: random.Random, path: str, body: bytes) -> Wrong:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
    raw = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(60) + b"\r\n\r\n",
        b"FOO BAR\r\n\r\n",
        head + b"Content-Length: abc\r\n\r\n",
        head + b"Content-Length: -5\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        head + b"X: \x00\r\n\r\n",
        head + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        f"GET {path} HTTP/1.1\r\n\r\n".encode(),
    ]
    return Wrong(raw=rng.choice(raw))


# Kinds of wrong requests: (random numbers, path of an ability, a right body) -> request.
WRONG: dict[str, Callable[[random.Random, str, bytes], Wrong]] = {
    function.__name__.strip("_"): function
    for function in (
        *(_values, _type, _field, _cut, _byte, _number, _deep, _text, _large, _noise, _method),
        *(_address, _header, _protocol),
    )
}


def send_wrong(url: str, path: str, body: bytes, requests: int) -> Outcome:
    """Sends wrong requests, one after the other.

    Args:
      url: of the server.
      path: of an ability.
      body: a right one, for it.
      requests: how many.
    """
    outcome, connection, begin = Outcome(), _connect(url), time.perf_counter()
    for wrong in wrong_requests(path, body, requests):
        try:
            status = _send_raw(url, wrong.raw) if wrong.raw else _send(connection, wrong)
        except (OSError, http.client.HTTPException, ValueError, IndexError) as error:
            connection.close()
            status = NO_ANSWER
            outcome.wrong.append(f"{wrong!r:.300}: {error!r}")
        outcome.statuses[status] += 1
        if status != NO_ANSWER and not 400 <= int(status) < 500:
            outcome.wrong.append(f"{wrong!r:.300}: {status}")
    connection.close()
    outcome.seconds = time.perf_counter() - begin
    return outcome


def _send(connection: http.client.HTTPConnection, wrong: Wrong) -> int:
    connection.request(wrong.method, wrong.path, wrong.body, wrong.headers)
    response = connection.getresponse()
    content = response.read()
    if wrong.method != "HEAD":
        message = json.loads(content)["error"]
        if not message or "\n" in message or "Traceback" in message:
            raise UserError(f"the message {message!r}")
    return response.status


def _send_raw(url: str, raw: bytes) -> int:
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), _TIMEOUT) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return int(answer.split()[1])


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
