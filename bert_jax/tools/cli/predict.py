"""Predicts texts, or the examples of files, with a trained model.

    bert_jax predict --model=MODEL "A wonderful film." "A waste of time."
    bert_jax predict --model=MODEL test.csv --output=predicted.csv
    cat texts.txt | bert_jax predict --model=MODEL - --output=-

A word is a file if there is one of that name, - is standard input, anything else is a text. A file
has the form of the training files, with or without labels, or one text per line; for a pre-trained
model one text with [MASK] per line, or a JSON object with `text_a` and `text_b`.

Without --output, predictions are printed. The ending of --output determines the form: .csv and .tsv
keep the columns of the input, and so does .parquet; .jsonl has a JSON object for each example, in
the same order, and --output=- prints these objects. The file is complete or absent.
"""

import argparse
import functools
import json
import sys
from typing import TYPE_CHECKING

from bert_jax.tools.cli.command_line import EXACT, INPUTS, TOP_K, TRAINED, Flag, load_model
from bert_jax.tools.outputs.files import PREDICTIONS, check_output
from bert_jax.tools.outputs.inputs import Inputs, find_inputs
from bert_jax.tools.outputs.readable import readable

if TYPE_CHECKING:
    from bert_jax.inference.loading import TrainedModel

FLAGS = (
    *TRAINED,
    EXACT,
    Flag("output", "", "File to write, by its ending; - prints JSON lines."),
    TOP_K,
    INPUTS,
)


def run(flags: argparse.Namespace) -> None:
    inputs = find_inputs(flags.text)
    check_output(flags.output, PREDICTIONS, inputs.paths)
    write_or_print(load_model(flags), inputs, flags.output, flags.top_k)


def write_or_print(
    model: "TrainedModel", inputs: Inputs, output_path: str = "", top_k: int = 5
) -> None:
    """Writes predictions to a file; without one prints them, or with "-" their JSON lines."""
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.predictions import predict, stream

    if output_path not in ("", "-"):
        predict(model, inputs, output_path, top_k, Terminal())
        return
    report = functools.partial(print, file=sys.stderr)
    for example, prediction in stream(model, inputs, top_k, report):
        if output_path:
            print(json.dumps(prediction, ensure_ascii=False))
        else:
            print(*readable(example, prediction), sep="\n")
