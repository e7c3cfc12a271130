"""Writes the predictions of a trained model for a file.

    python -m bert_jax predict --workdir=DIR --input=FILE --output=FILE

The input of a fine-tuned model has the form of its training files, with or without labels; that of
a pre-trained model has a text with [MASK] on each line, or a JSON object with `text_a` and
`text_b`. The output has a JSON object for each example, in the same order.
"""

import argparse

from bert_jax.config import store
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import RUN, TOP_K, Flag, read_config, start_run

FLAGS = (
    *RUN,
    Flag("input", "", "predict: file to read, a text or a JSON object a line."),
    Flag("output", "", "predict: file to write, a JSON object a line."),
    TOP_K,
)


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags)
    store.check_one_run(config, flags.workdir)
    if not (flags.input and flags.output):
        raise UserError("predict needs --input=FILE and --output=FILE.")
    start_run(flags)
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.predictions import predict

    predict(config, flags.workdir, flags.input, flags.output, flags.top_k, Terminal())
