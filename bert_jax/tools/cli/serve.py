"""Serves a page and a JSON API for whatever a trained model can do, on this machine.

    python -m bert_jax serve --workdir=DIR
    python -m bert_jax serve --workdir=DIR --port=0 --rate=0
    curl -d '{"inputs": ["The [MASK] of the list."]}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:8000/api/predict

The page and GET /api say what the model can do. Ctrl-C or SIGTERM ends the server after what it has
accepted. docs/serve.md describes the API.
"""

import importlib.util
from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser

_PACKAGES = ("starlette", "uvicorn")


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax serve", __doc__)
    parser.flag("workdir", "", "Folder of a trained run, or of imported weights.")
    parser.flag("port", 8000, "Port of the page; 0: a free one.", least=0)
    parser.flag("host", "127.0.0.1", "Address to listen at; others than this machine's can ask it.")
    parser.flag("top_k", 5, "Candidates for each [MASK].", least=1)
    parser.flag("rate", 100, "Requests a second of one client; 0: any number.", least=0)
    parser.flag("waiting", 256, "Requests that may wait for the model.", least=1)
    run_flags.add_cache(parser)
    config, flags = configuration.parse_config(parser, argv, workdir_is_enough=True)
    run_flags.check_trained(config, flags)
    if flags.port > 65535:
        raise UserError(f"--port={flags.port} must be at most 65535.")
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"serve needs the package {name}: pip install 'bert_jax[serve]' (starlette and"
                " uvicorn)."
            )

    run_flags.use_cache(flags)
    from bert_jax.tools.serve.server import is_local, open_socket, serve
    from bert_jax.tools.serve.service import Service

    def report(line: str) -> None:
        print(line, flush=True)

    opened = open_socket(flags.host, flags.port)
    if not is_local(opened):
        report(
            f"warning    --host={flags.host}: other machines can ask this server, which has no"
            " passwords"
        )
    service = Service(config, flags.workdir, flags.top_k)
    for name, reason in service.missing.items():
        report(f"without    {name}: {reason}")
    service.warm_up(report)
    serve(service, opened, flags.waiting, flags.rate, report)
