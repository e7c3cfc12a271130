"""The command as a user starts it: its announcement, its start, a small load, and its end."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from benchmarks import command
from benchmarks import serve as benchmark
from bert_jax.__main__ import main as run_command
from bert_jax.tools.serve import server
from bert_jax.tools.serve.server import is_local, open_socket
from tests.inference.conftest import REPOSITORY

# A module that a model needs, and which is not there before a file `go` is.
GATE = """
import os, time

while not os.path.exists("go"):
    time.sleep(0.02)
"""
# The command where jax cannot be imported.
WITHOUT_JAX = """
import sys

sys.modules["jax"] = None
from bert_jax.__main__ import start

start()
"""


@contextlib.contextmanager
def loading(workdir, folder):
    """Yields the process and the address of a server whose model is loaded when `go` is there."""
    (folder / "gate.py").write_text(GATE)
    flags = (f"--model={workdir}", "--port=0", "--import=gate")
    command = [sys.executable, "-m", "bert_jax", "serve", *flags]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert (line := re.fullmatch(r"listening  (\S+)\n", process.stdout.readline()))
            yield process, line[1]
        finally:
            process.kill()


def get(address, body=None):
    """Returns the status, the content, and after how many seconds to ask again."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode(), None
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["Retry-After"]


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


def test_the_port_answers_while_the_model_is_loaded(make_workdir, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    workdir = make_workdir(model__num_layers=1)
    with loading(workdir, tmp_path) as (process, _):
        process.terminate()
        assert process.communicate()[0] == "stopped    0 requests accepted, 0 without an answer\n"
        assert process.returncode == 0

    with loading(workdir, tmp_path) as (process, url):
        assert process.stdout
        message = "The model is being loaded: ask again in 5 s."
        for path, body in (("/health", None), ("/api", None), ("/api/encode", b"{}")):
            status, content, seconds = get(url + path, body)
            assert (status, seconds) == (503, "5")
            assert json.loads(content) == {"status": "loading", "error": message}
        status, content, _ = get(url)
        assert status == 503 and "Loading the model." in content
        (tmp_path / "go").touch()
        assert re.fullmatch(rf"serving \S+ at {url}\n", process.stdout.readline())
        assert get(f"{url}/health") == (200, '{"status":"ready"}', None)
        process.send_signal(signal.SIGINT)
        assert process.communicate()[0] == "stopped    5 requests accepted, 0 without an answer\n"
        assert process.returncode == 0


def test_a_model_that_cannot_be_loaded_ends_the_server_without_jax(tmp_path):
    command = [sys.executable, "-c", WITHOUT_JAX, "serve", f"--model={tmp_path}", "--port=0"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout.startswith("listening  http://127.0.0.1:") and done.stdout.count("\n") == 1
    assert done.stderr.startswith(f"error: {tmp_path} is neither a workdir (with checkpoints/), n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--port=70000", "--port=70000 must be at most 65535."),
        ("--port=TAKEN", r"--host=127.0.0.1 --port=\d+ cannot be used .*: give another --port, "),
        ("--host=192.0.2.1", r"--host=192.0.2.1 --port=8000 cannot be used .*: --host must be an"),
        ("--host=a..b", r"--host=a..b --port=8000 cannot be used .*: --host must be an address of"),
    ],
)
def test_an_address_that_cannot_be_used_is_reported_first(flag, message):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flag = flag.replace("TAKEN", str(taken.getsockname()[1]))
        with pytest.raises(ValueError, match=f"^{message}"):
            run_command(["serve", "--model=lost", flag])


def test_other_machines_get_a_warning(monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(server, "serve", lambda _, socket, *others: opened.append(socket))
    for host in ("0.0.0.0", "127.0.0.1"):
        run_command(["serve", "--model=lost", f"--host={host}", "--port=0"])
    for socket_ in opened:
        socket_.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning    --host=0.0.0.0: other machines can ask this server")


def test_sockets_send_at_once_and_know_who_can_reach_them():
    for host, expected in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        with open_socket(host, 0) as opened:
            assert is_local(opened) == expected
            assert opened.getsockname()[1] > 0 and opened.proto == socket.IPPROTO_TCP
