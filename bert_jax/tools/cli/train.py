"""Trains a model, or resumes a run that was stopped.

    python -m bert_jax train --config=configs/tiny.py --workdir=DIR
    python -m bert_jax train --config=configs/base.py --workdir=DIR --config.data.source=text:PATH
    python -m bert_jax train --config=configs/glue.py:mrpc --config.init_from=BERT --workdir=DIR

The same command continues a run that was stopped, with exactly the same results.
"""

import argparse
from collections.abc import Sequence

from bert_jax.config.run import RunConfig
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax train", __doc__)
    run_flags.add(parser)
    run(*configuration.parse_config(parser, argv))


def run(config: RunConfig, flags: argparse.Namespace) -> None:
    """Runs the command with its parsed flags.

    Raises:
      UserError: for a missing flag, and as bert_jax.training.train.train.
    """
    run_flags.check(flags)
    run_flags.start(flags)
    if config.get("seeds", 1) > 1:
        from bert_jax.training.seeds import train_seeds as train
    else:
        from bert_jax.training.train import train
    from bert_jax.devices import processes
    from bert_jax.tools.listeners.make import training_listener

    result = train(config, flags.workdir, listener=training_listener())
    if result.is_complete and processes.is_main():
        from bert_jax.tools.report.report import write_report

        print(write_report(flags.workdir))
