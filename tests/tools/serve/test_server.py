"""The command as a user starts it: its announcement, a small load, and its end."""

import contextlib
import json
import socket
import threading
import urllib.request
from unittest import mock

import pytest

from benchmarks import command
from benchmarks import serve as benchmark
from bert_jax.__main__ import main as run_command
from bert_jax.tools.serve import server, service
from bert_jax.tools.serve.server import is_local, open_socket
from tests.inference.conftest import REPOSITORY


def test_a_server_answers_a_load_and_all_that_it_accepted_before_its_end(
    make_workdir, monkeypatch, capsys
):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    monkeypatch.chdir(REPOSITORY)
    sizes = {"model__num_layers": 1, "model__max_position_embeddings": 32}
    workdir = make_workdir(**sizes, phases=((32, 1.0),))
    with benchmark.started(workdir, "--top_k=2") as (process, url):
        with urllib.request.urlopen(url) as response:
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert b"Fill masks" in response.read()
        body = json.dumps({"inputs": ["the [MASK] is"]}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/api/predict", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            (mask,) = json.load(response)["predictions"][0]["masks"]
        assert mask["position"] == 2 and len(mask["candidates"]) == 2

        monkeypatch.setattr(benchmark, "CLIENTS", (1, 16))
        running = contextlib.nullcontext((process, url))
        monkeypatch.setattr(benchmark, "started", lambda workdir: running)
        flags = [f"--model={workdir}", "--endpoint=encode", "--requests=40"]
        command.main("serve", flags)
        _, bodies, _, *lines = capsys.readouterr().out.splitlines()
        assert bodies.startswith("POST /api/encode, bodies of ")
        assert [line.split()[0] for line in lines] == ["1", "16"]
        assert [line.split()[-1] for line in lines] == ["0", "0"]  # all were answered
        message = "^--endpoint=x is none of predict, similarity, encode"
        with pytest.raises(ValueError, match=message):
            benchmark.choose(url, "x")

        path, inputs = benchmark.choose(url, "encode")
        bodies = benchmark.make_bodies(inputs)
        threading.Timer(0.5, process.terminate).start()
        answered = benchmark.load(url, path, bodies, 16, 10_000_000)
        output, _ = process.communicate()
    # The page, the masks, three descriptions, the benchmark's requests, and the last load.
    accepted = 2 + 3 + 200 + 2 * 40 + len(answered)
    assert f"stopped    {accepted:,} requests accepted, 0 without an answer\n" in output
    assert answered and process.returncode == 0


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--port=70000", "--port=70000 must be at most 65535."),
        ("--port=TAKEN", r"--host=127.0.0.1 --port=\d+ cannot be used .*: give another --port"),
    ],
)
def test_an_address_that_cannot_be_used_is_reported_first(flag, message, workdir, monkeypatch):
    monkeypatch.setattr(service, "Service", None)  # the model is not read
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flag = flag.replace("TAKEN", str(taken.getsockname()[1]))
        with pytest.raises(ValueError, match=f"^{message}"):
            run_command(["serve", f"--model={workdir}", flag])


def test_other_machines_get_a_warning(workdir, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(service, "Service", lambda *arguments: mock.Mock(missing={}))
    monkeypatch.setattr(server, "serve", lambda _, socket, *others: opened.append(socket))
    for host in ("0.0.0.0", "127.0.0.1"):
        run_command(["serve", f"--model={workdir}", f"--host={host}", "--port=0"])
    for socket_ in opened:
        socket_.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning    --host=0.0.0.0: other machines can ask this server")


def test_sockets_send_at_once_and_know_who_can_reach_them():
    for host, expected in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        with open_socket(host, 0) as opened:
            assert is_local(opened) == expected
            assert opened.getsockname()[1] > 0 and opened.proto == socket.IPPROTO_TCP
