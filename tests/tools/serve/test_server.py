"""The command as a user starts it: its announcement, its end, and a small load."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from unittest import mock

import pytest

from bert_jax.tools.benchmark import serve as benchmark
from bert_jax.tools.cli import serve
from bert_jax.tools.serve import server, service
from bert_jax.tools.serve.server import is_loopback, open_socket
from tests.inference.conftest import REPOSITORY


@pytest.fixture(scope="module")
def small(make_workdir):
    """The workdir of a model with few shapes; its servers have one device."""
    sizes = {"model__num_layers": 1, "model__max_position_embeddings": 32}
    workdir = make_workdir(**sizes, phases=((32, 1.0),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_NUM_CPU_DEVICES", "1")
        patch.chdir(REPOSITORY)
        yield workdir


@pytest.fixture(scope="module")
def started(small):
    with benchmark.started(small, "--top_k=2") as (_, url):
        yield url


def post(url, path, body):
    request = urllib.request.Request(
        f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_it_answers_at_the_announced_address(started):
    found = post(started, "/api/predict", {"inputs": ["the [MASK] is"]})
    (mask,) = found["predictions"][0]["masks"]
    assert mask["position"] == 2 and len(mask["candidates"]) == 2
    with urllib.request.urlopen(started) as response:
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert b"Fill masks" in response.read()


def test_every_example_of_the_description_is_answered(started):
    with urllib.request.urlopen(f"{started}/api") as response:
        abilities = json.load(response)["abilities"]
    for path, ability in abilities.items():
        assert post(started, path, ability["example"])


def test_what_is_not_http_is_refused_as_json(started):
    host, port = re.fullmatch(r"http://(.+):(\d+)", started).groups()
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(b"NOT HTTP\r\n\r\n")
        head, _, content = connection.recv(4096).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(content) == {"error": "Invalid HTTP request received."}


def test_the_benchmark_loads_the_server(small, capsys, monkeypatch):
    monkeypatch.setattr(benchmark, "CLIENTS", (1, 16))
    benchmark.run(small, "features", 40)
    _, bodies, _, *lines = capsys.readouterr().out.splitlines()
    assert bodies.startswith("POST /api/features, bodies of ")
    assert [line.split()[0] for line in lines] == ["1", "16"]
    assert [line.split()[-1] for line in lines] == ["0", "0"]  # all were answered


def test_accepted_requests_are_answered_at_the_end(small, started):
    """A server that is ended in the middle of a load, and has counted no other requests."""
    path, inputs = benchmark.choose(started, "features")
    bodies = benchmark.make_bodies(inputs)
    with benchmark.started(small) as (process, url):
        threading.Timer(2.0, process.terminate).start()
        answered = benchmark.load(url, path, bodies, 16, 10_000_000)
        output, _ = process.communicate()
    accepted = re.search(r"stopped +([\d,]+) requests accepted", output)
    assert accepted and int(accepted[1].replace(",", "")) == len(answered) > 0
    assert process.returncode == 0


def test_an_unknown_ability_of_the_benchmark(started):
    with pytest.raises(ValueError, match="^--ability=x is none of predict, similarity, features"):
        benchmark.choose(started, "x")


def test_a_server_that_does_not_start(tmp_path):
    with pytest.raises(ValueError, match="^The server did not start: error: .* holds no run"):
        with benchmark.started(str(tmp_path)):
            pass


def run(*flags):
    return subprocess.run(
        [sys.executable, "-m", "bert_jax", "serve", *flags],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_taken_port_is_reported_before_the_model_is_read(workdir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(f"--workdir={workdir}", f"--port={taken.getsockname()[1]}")
    assert done.returncode == 2 and "compiled" not in done.stdout
    assert re.fullmatch(r"error: --host=127.0.0.1 --port=\d+ cannot be used .*\n", done.stderr)


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--config is missing: give a file"),
        (["--port=70000"], "--port=70000 must be at most 65535."),
        (["--port=-1"], "argument --port: -1 must be at least 0"),
        (["--host=nowhere.invalid"], "--host=nowhere.invalid --port=8000 cannot be used"),
    ],
)
def test_an_invalid_flag_is_reported(flags, message, workdir):
    done = run(*([f"--workdir={workdir}", *flags] if flags else []))
    assert done.returncode == 2 and done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


def test_a_warning_for_other_machines(workdir, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(service, "Service", lambda *arguments: mock.Mock(missing={}))
    monkeypatch.setattr(server, "serve", lambda _, socket, *others: opened.append(socket))
    for host in ("0.0.0.0", "127.0.0.1"):
        serve.main(["serve", f"--workdir={workdir}", f"--host={host}", "--port=0"])
    for socket_ in opened:
        socket_.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning    --host=0.0.0.0: other machines can ask this server")


def test_a_missing_package_is_named(workdir, monkeypatch):
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"serve needs the package starlette: pip install 'bert_"):
        serve.main(["serve", f"--workdir={workdir}"])


def test_loopback_addresses():
    local = ["127.0.0.1", "127.9.9.9", "::1", "localhost"]
    assert all(map(is_loopback, local))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "example.org"]))
    with open_socket("127.0.0.1", 0) as opened:
        assert opened.getsockname()[1] > 0
        assert opened.proto == socket.IPPROTO_TCP
