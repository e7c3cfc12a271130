"""Writes the predictions of a trained model for a file.

    python -m bert_jax predict --workdir=DIR --input=FILE --output=FILE

The input of a fine-tuned model has the form of its training files, with or without labels; that of
a pre-trained model has a text with [MASK] on each line, or a JSON object with `text_a` and
`text_b`. The output has a JSON object for each example, in the same order.
"""

import argparse
from collections.abc import Sequence

from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser


def add_flags(parser: Parser) -> None:
    """Adds the flags that only this command has."""
    parser.flag("input", "", "predict: file to read, a text or a JSON object a line.")
    parser.flag("output", "", "predict: file to write, a JSON object a line.")
    parser.flag("top_k", 5, "predict: candidates for each [MASK].", least=1)


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax predict", __doc__)
    run_flags.add(parser)
    add_flags(parser)
    run(*configuration.parse_config(parser, argv, workdir_is_enough=True))


def run(config: RunConfig, flags: argparse.Namespace) -> None:
    """Runs the command with its parsed flags.

    Raises:
      UserError: for a missing flag, and as bert_jax.tools.outputs.predictions.predict.
    """
    run_flags.check_trained(config, flags)
    if not (flags.input and flags.output):
        raise UserError("predict needs --input=FILE and --output=FILE.")
    run_flags.start(flags)
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.predictions import predict

    predict(config, flags.workdir, flags.input, flags.output, flags.top_k, Terminal())
