"""Trains a model, or resumes a run that was stopped.

    bert_jax train --config=configs/tiny.py --workdir=DIR
    bert_jax train --config=configs/base.py --workdir=DIR --config.data.source=text:PATH
    bert_jax train --config=configs/glue.py:mrpc --config.init_from=BERT --workdir=DIR

The same command continues a run that was stopped, with exactly the same results, and so does
bert_jax train --workdir=DIR, with the configuration that the run began with. The exit code is
130 after Ctrl-C and 143 after SIGTERM, which save the run.
"""

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from bert_jax.config import store
from bert_jax.tools.cli.command_line import RUN, TRACKERS, read_config, start_run

if TYPE_CHECKING:
    from bert_jax.config.run import RunConfig

FLAGS = (*RUN, TRACKERS)


def run(flags: argparse.Namespace) -> None:
    config = read_config(flags, run_is_enough=store.is_run(flags.workdir))
    start_run(flags)
    train_and_report(config, flags.workdir, flags.trackers)


def train_and_report(config: "RunConfig", workdir: str, trackers: str = "") -> None:
    """Trains, writes the report, and prints its path; exits with 130 or 143 after a signal."""
    from bert_jax.devices import processes
    from bert_jax.tools.listeners.make import training_listener

    listener = training_listener(trackers)
    if config.get("seeds", 1) > 1:
        from bert_jax.training.seeds import train_seeds as train
    else:
        from bert_jax.training.train import train
    result = train(config, workdir, listener=listener)
    if result.stopped_by:
        processes.barrier("stopped")  # all has been saved: a launcher may kill the others now
        sys.exit(128 + signal.Signals[result.stopped_by])
    if processes.is_main():
        from bert_jax.tools.report.report import write_report

        print(write_report(workdir))
