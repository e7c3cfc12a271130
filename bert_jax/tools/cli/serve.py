"""Serves a page and a JSON API for whatever a trained model can do, on this machine.

    bert_jax serve --model=MODEL
    bert_jax serve --model=MODEL --port=0 --rate=0
    curl -d '{"inputs": ["The [MASK] of the list."]}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:8000/api/predict

The port answers at once, with status 503 until the model is loaded. The page and GET /api say what
the model can do. Ctrl-C or SIGTERM ends the server after what it has accepted. docs/serve.md
describes the API.
"""

import argparse
import importlib.util
from typing import TYPE_CHECKING

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import EXACT, TOP_K, TRAINED, Flag, load_model

if TYPE_CHECKING:
    from bert_jax.tools.serve.service import Service

FLAGS = (
    *TRAINED,
    EXACT,
    Flag("port", 8000, "Port of the page; 0: a free one.", minimum=0),
    Flag("host", "127.0.0.1", "Address to listen at; others than this machine's can ask it."),
    TOP_K,
    Flag("rate", 100, "Requests per second of one client; 0: any number.", minimum=0),
    Flag("warm", False, "Compile all programs first; otherwise requests compile theirs."),
    Flag("waiting", 256, "Requests that may wait for the model.", minimum=1),
)


def run(flags: argparse.Namespace) -> None:
    if flags.port > 65535:
        raise UserError(f"--port={flags.port} must be at most 65535.")
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"serve needs the package {name}: pip install 'bert_jax[serve]' (starlette and"
                " uvicorn)."
            )

    from bert_jax.tools.serve.server import is_local, open_socket, serve

    def report(line: str) -> None:
        print(line, flush=True)

    def load() -> "Service":
        model = load_model(flags)
        from bert_jax.tools.serve.service import Service

        service = Service(model, flags.top_k, "dtype" in flags.overrides)
        for name, reason in service.missing.items():
            report(f"without    {name}: {reason}")
        return service

    opened = open_socket(flags.host, flags.port)
    if not is_local(opened):
        report(
            f"warning    --host={flags.host}: other machines can ask this server, which has no"
            " passwords"
        )
    serve(load, opened, flags.warm, flags.waiting, flags.rate, report)
