"""Names of the Hugging Face hub, against a server on this machine that answers as the hub does."""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.hub import local_model

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": b"\x02\0\0\0\0\0\0\0{}",
    "pytorch_model.bin": b"never downloaded",
    "README.md": b"nor this",
}
NAME = "someone/small-bert"


class Hub(http.server.BaseHTTPRequestHandler):
    """The parts of the hub's interface that a download needs, for one model."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == f"/api/models/{NAME}/revision/main":
            names = [{"rfilename": name} for name in FILES]
            return self._json({"id": NAME, "sha": COMMIT, "siblings": names})
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            rows = [
                {"type": "file", "path": name, "size": len(data), "oid": oid(data)}
                for name, data in FILES.items()
            ]
            return self._json(rows)
        name = path.removeprefix(f"/{NAME}/resolve/{COMMIT}/")
        if name in FILES:
            return self._send(200, FILES[name], ETag=f'"{oid(FILES[name])}"')
        return self._send(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def _send(self, status, data, **headers):
        self.send_response(status)
        for name, value in {**headers, "X-Repo-Commit": COMMIT}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


def oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


CODE = """
import sys
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.formats.hub import local_model
for name in sys.argv[1:]:
    try:
        print(local_model(name), format_of(name))
    except UserError as error:
        print(error)
"""


def ask(cache: pathlib.Path, *names: str, **environment: str) -> list[str]:
    """Returns the path and the format of each name, or the message, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names],
        env=os.environ | {"HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_are_downloaded_once_and_unknown_ones_named(server, tmp_path):
    by_scheme, by_name, unknown, path = ask(
        tmp_path, f"hf://{NAME}", NAME, "hf://someone/else", "runs/none", HF_ENDPOINT=server
    )
    folder, _, format = by_scheme.partition(" ")
    assert by_name == by_scheme and format == "huggingface"
    assert str(tmp_path) in folder and COMMIT in folder
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    assert unknown.startswith(f"hf://someone/else: {server} has no model someone/else")
    assert path.startswith("runs/none: no such file or folder here, and as a name of the hub: ")
    offline = {"HF_ENDPOINT": server, "HF_HUB_OFFLINE": "1"}
    cached, missing = ask(tmp_path, NAME, "hf://someone/else", **offline)
    assert cached == by_scheme
    assert "someone/else is not in the cache, and HF_HUB_OFFLINE is set" in missing


def test_a_server_that_cannot_be_reached_is_named(tmp_path):
    (message,) = ask(tmp_path, f"hf://{NAME}", HF_ENDPOINT="http://127.0.0.1:9")
    assert message.startswith(f"hf://{NAME}: ") and "http://127.0.0.1:9" in message


def test_without_the_package_a_name_is_a_path(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"hf://a/b needs .* pip install 'bert_jax\[hub\]'"):
        local_model("hf://a/b")
    with pytest.raises(UserError, match="a/c: no such file or folder: give a workdir"):
        format_of("a/c")


def test_paths_are_never_names(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for path in ("a/b", "a", "./none", "/none", "a/b/none", "none/"):
        assert local_model(path) == path
    with pytest.raises(UserError, match="hf://../x is not a name of the hub"):
        local_model("hf://../x")
