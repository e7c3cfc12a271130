"""Evaluates a run on its held-out data, or a language model on minimal pairs of a grammar.

    bert_jax evaluate --workdir=DIR
    bert_jax evaluate --suite=zorro --model=MODEL

The first prints the metrics of a run and writes results.json; the checkpoint is the newest or the
best one, as config.checkpoint.use says.

The second prints how often a model gives the acceptable sentence of a pair the higher score, by
paradigm and in the mean; a tie counts one half. The score is the log-likelihood, or of a
masked language model, the pseudo-log-likelihood, with each token masked in turn;
--method=within_words masks the later pieces of a word too, and --method=next_tokens takes the
log-likelihood of a model that was trained on next tokens too. A suite is blimp or zorro, which are
downloaded once, or a file with columns good and bad, and if there are such, paradigm and field; or
a folder of such files. --output writes the scores of each pair.
"""

import argparse
import os

from bert_jax.config import store
from bert_jax.files.errors import UserError
from bert_jax.scores.language_model import METHODS
from bert_jax.tools.cli.command_line import (
    MODEL,
    RUN,
    Flag,
    load_model,
    optional,
    read_config,
    start_run,
)
from bert_jax.tools.outputs.files import OBJECTS, check_output, write_objects

FLAGS = (
    *map(optional, RUN),
    Flag("suite", "", "Minimal pairs: blimp, zorro, a file or a folder."),
    optional(MODEL),
    Flag(
        "method",
        "",
        "Masks the later pieces of a word too (within_words), or scores by next tokens.",
        METHODS,
    ),
    Flag("per_paradigm", 0, "Pairs of each paradigm, evenly spaced; 0: all.", minimum=0),
    Flag("output", "", "File for the scores of each pair, .jsonl or .parquet."),
)
_OF_SUITES = ("model", "method", "per_paradigm", "output")


def run(flags: argparse.Namespace) -> None:
    if flags.suite:
        if not flags.model:
            raise UserError("--model is missing: the language model that the suite is for.")
        if given := [name for name in ("workdir", "config") if getattr(flags, name)]:
            raise UserError(f"--{given[0]} evaluates a run, and --suite a model: leave one out.")
        _run_suite(flags)
        return
    if not flags.workdir:
        raise UserError("--workdir is missing: a run to evaluate; or --suite and --model.")
    if given := [name for name in _OF_SUITES if getattr(flags, name)]:
        raise UserError(f"--{given[0]} is for --suite=blimp, zorro or a file.")
    config = read_config(flags)
    store.check_one_run(config, flags.workdir)
    start_run(flags)
    from bert_jax.tools.listeners.make import evaluation_listener
    from bert_jax.training.evaluate import evaluate

    evaluate(config, flags.workdir, listener=evaluation_listener())


def _run_suite(flags: argparse.Namespace) -> None:
    if flags.output == "-":
        raise UserError("--output=- is the standard output, which has the table: name a file.")
    check_output(flags.output, OBJECTS, filter(os.path.exists, [flags.suite]))
    flags.overrides.setdefault("dtype", "float32")
    model = load_model(flags)
    from bert_jax.inference.minimal_pairs import score_suite
    from bert_jax.tools.listeners.terminal import Terminal

    terminal = Terminal()
    how = (flags.suite, flags.method, flags.per_paradigm)
    result = score_suite(model, *how, terminal.progress)
    for kind in ("paradigms", "fields"):
        for name, accuracy in getattr(result.scores, kind).items():
            terminal.line(f"{kind[:-1]:<10} {name:<60} {accuracy}")
    mean, count = result.scores.mean, len(result.scores.paradigms)
    terminal.line(f"{'mean':<10} {f'of {count} paradigms, {len(result.pairs):,} pairs':<60} {mean}")
    terminal.line(
        f"           {result.scores.ties:,} ties; {result.unknown:.1%} of the tokens are unknown"
    )
    if flags.output:
        write_objects(flags.output, result.rows())
