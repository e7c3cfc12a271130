"""Prints or writes log-likelihoods of texts, or pseudo-log-likelihoods.

    bert_jax score --model=MODEL "The list is returned." "List the returned is."
    bert_jax score --model=MODEL texts.txt --output=scores.jsonl

A word is a file if there is one of that name, - is standard input, anything else is a text. A file
has a text on each line, or a JSON object with `text_a` and, for a pair, `text_b`; of a table (CSV,
TSV, JSON lines, Parquet) the column of texts is read, or --column. Prints a table, or with --output
(.jsonl or .parquet) writes an object for each text:

    {"pseudo_log_likelihood": -9.1, "tokens": 5, "unknown_tokens": 0, "per_token": -1.82,
     "perplexity": 6.2, "log_probabilities": [{"token": "the", "log_probability": -0.6}, ...]}

With a masked language model the score is the pseudo-log-likelihood, the sum of ln p(token | all
others) over all tokens except [CLS] and [SEP], with each token masked in turn. With a model that
predicts next tokens it is the log-likelihood, the sum of ln p(token | those before it), and the
field is `log_likelihood`. The perplexity is exp(-per_token).
"""

import argparse
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bert_jax.data.labelled.texts import Text
from bert_jax.tools.cli.command_line import (
    BATCH_TOKENS,
    COLUMN,
    EXACT,
    INPUTS,
    TRAINED,
    Flag,
    load_model,
)
from bert_jax.tools.outputs.files import OBJECTS, check_output, write_objects
from bert_jax.tools.outputs.inputs import find_inputs

if TYPE_CHECKING:
    from bert_jax.inference.scoring import Scorer
    from bert_jax.training.listener import Listener

FLAGS = (
    *TRAINED,
    EXACT,
    Flag("output", "", "File to write, .jsonl or .parquet; without it, prints a table."),
    BATCH_TOKENS,
    COLUMN,
    INPUTS,
)


def run(flags: argparse.Namespace) -> None:
    inputs = find_inputs(flags.text, flags.column)
    check_output(flags.output, OBJECTS, inputs.paths)
    inputs.print_notes()
    model = load_model(flags)
    from bert_jax.inference.predictor import Predictor
    from bert_jax.inference.scoring import Scorer

    write_scores(Scorer(Predictor(model, flags.batch_tokens)), inputs.texts, flags.output)


def write_scores(scorer: "Scorer", texts: Callable[[], Iterable[Text]], output: str) -> None:
    """Writes a JSON object for each text, or prints a table; the file is complete or absent.

    Args:
      scorer: a model that predicts tokens.
      texts: returns the texts, which are read several times.
      output: path of the file; empty: print score, mean per token, tokens, perplexity and text.
    """
    from bert_jax.tools.listeners.terminal import Terminal

    terminal = Terminal()
    if output:
        scored = _scored(scorer, texts, terminal, f"texts scored in {output}")
        write_objects(output, (score for _, score in scored))
        return
    print(f"{scorer.short_name:>10} {'per token':>10} {'tokens':>7} {'perplexity':>11}  text")
    for text, score in _scored(scorer, texts, terminal, "texts scored"):
        mean = perplexity = "-"
        if score["tokens"]:
            mean, perplexity = f"{score['per_token']:.3f}", f"{score['perplexity']:,.1f}"
        total = score[scorer.name]
        terminal.line(f"{total:10.3f} {mean:>10} {score['tokens']:>7} {perplexity:>11}  {text}")


def _scored(
    scorer: "Scorer", texts: Callable[[], Iterable[Text]], listener: "Listener", what: str
) -> Iterator[tuple[Text, dict[str, Any]]]:
    """Yields each text with its score; all texts are validated first."""
    from bert_jax.tools.outputs.predictions import Progress

    count = tokens = passes = 0
    for row in map(scorer.row, texts()):
        count += 1
        tokens += scorer.count_scored(row)
        passes += scorer.count_passes(row)
    progress = Progress(passes, listener)
    total = 0.0
    scores = scorer.score(map(scorer.row, texts()), progress.add)
    for text, score in zip(texts(), scores, strict=True):
        total += score[scorer.name]
        yield text, score
    progress.finish(count, what)
    if tokens:
        mean = math.exp(-total / tokens)
        listener.line(f"all {tokens:,} tokens together: perplexity {mean:,.1f}")
