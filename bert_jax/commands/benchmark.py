"""Runs one benchmark.

    python -m bert_jax.benchmark step --models=tiny,base

Each is a module with a `main(argv)`; `--help` after its name prints its flags.
"""

import importlib
from collections.abc import Sequence

from bert_jax.commands import command_line

# Name -> module.
BENCHMARKS = {
    "step": "bert_jax.benchmark.step",
    "train": "bert_jax.benchmark.train",
    "prepare": "bert_jax.benchmark.prepare",
    "finetune": "bert_jax.benchmark.finetune",
}


def main(argv: Sequence[str]) -> None:
    name = argv[1] if len(argv) > 1 else ""
    if name in ("--help", "-h"):
        print(__doc__)
        name = ""
    if name not in BENCHMARKS:
        raise ValueError(f"Unknown benchmark {name!r}. Available: {', '.join(BENCHMARKS)}.")
    importlib.import_module(BENCHMARKS[name]).main(argv[2:])


if __name__ == "__main__":
    command_line.run(main)
