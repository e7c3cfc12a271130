"""Evaluates a run on its held-out data; prints the metrics and writes results.json.

    python -m bert_jax evaluate --workdir=DIR

The checkpoint is the newest or the best one, as config.checkpoint.use says.
"""

import argparse
from collections.abc import Sequence

from bert_jax.config.run import RunConfig
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax evaluate", __doc__)
    run_flags.add(parser)
    run(*configuration.parse_config(parser, argv, workdir_is_enough=True))


def run(config: RunConfig, flags: argparse.Namespace) -> None:
    """Runs the command with its parsed flags.

    Raises:
      UserError: for a missing flag, and as bert_jax.training.evaluate.evaluate.
    """
    run_flags.check_trained(config, flags)
    run_flags.start(flags)
    from bert_jax.tools.listeners.make import evaluation_listener
    from bert_jax.training.evaluate import evaluate

    evaluate(config, flags.workdir, listener=evaluation_listener())
