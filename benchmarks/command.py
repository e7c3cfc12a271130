"""Runs a benchmark from the command line, with the flags and the errors of `bert_jax`.

A benchmark is a module with FLAGS and `run(flags)`, and its docstring is the help text.
"""

import argparse
import functools
import importlib
from collections.abc import Sequence

from bert_jax.tools.cli import command_line


def main(name: str, words: Sequence[str]) -> None:
    """Runs the benchmark `name` with words as its flags.

    Raises:
      UserError: it cannot use its flags.
    """
    module = importlib.import_module(f"benchmarks.{name}")
    module.run(command_line.parse(module.__name__, module.__doc__, module.FLAGS, words))


def start(name: str) -> None:
    """Runs the benchmark `name` with the words of this process, and ends it with an exit code."""
    command_line.run(functools.partial(main, name))


def config_words(flags: argparse.Namespace) -> list[str]:
    """Returns the flags of `bert_jax` that select the same configuration."""
    fields = (f"--config.{name}={text}" for name, text in flags.overrides.items())
    return [f"--config={flags.config}", *fields] if "config" in flags else [*fields]
