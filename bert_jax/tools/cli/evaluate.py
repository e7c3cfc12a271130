"""Evaluates a run on its held-out data; prints the metrics and writes results.json.

    bert_jax evaluate --workdir=DIR

The checkpoint is the newest or the best one, as config.checkpoint.use says.
"""

import argparse

from bert_jax.config import store
from bert_jax.tools.cli.command_line import RUN, read_config, start_run

FLAGS = RUN


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags)
    store.check_one_run(config, flags.workdir)
    start_run(flags)
    from bert_jax.tools.listeners.make import evaluation_listener
    from bert_jax.training.evaluate import evaluate

    evaluate(config, flags.workdir, listener=evaluation_listener())
