"""Predicts the [MASK] tokens of texts.

    bert_jax fill_mask --model=MODEL "The [MASK] of the list is returned."
    bert_jax fill_mask --model=MODEL texts.txt --output=filled.jsonl
    bert_jax fill_mask --model=MODEL "Returns [MASK:5] of an array."
    bert_jax fill_mask --model=MODEL --held_out=5

A word that names a file stands for the texts in it, one per line; - is standard input; anything
else is a text. Of a table (CSV, TSV, JSON lines, Parquet) the column of texts is read, or --column.
[MASK:5] is five masks, which are predicted independently. --held_out masks frequent words of
held-out sentences of the model's corpus, and prints the masked tokens too. Without --output, the
candidates are printed.
"""

import argparse

from bert_jax.data.labelled.texts import spell_masks
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import COLUMN, EXACT, INPUTS, TOP_K, TRAINED, Flag, load_model
from bert_jax.tools.cli.predict import write_or_print
from bert_jax.tools.outputs.files import OBJECTS, check_output
from bert_jax.tools.outputs.inputs import Inputs, Source, find_inputs
from bert_jax.tools.outputs.readable import readable

FLAGS = (
    *TRAINED,
    EXACT,
    Flag("output", "", "File to write, .jsonl or .parquet; - prints JSON lines."),
    TOP_K,
    Flag("held_out", 0, "Number of held-out sentences, instead of texts.", minimum=0),
    COLUMN,
    INPUTS,
)


def run(flags: argparse.Namespace) -> None:
    if flags.held_out:
        if flags.text or flags.output:
            raise UserError("--held_out prints its own sentences: leave out texts and --output.")
        _fill_held_out(flags)
        return
    inputs = find_inputs(flags.text, flags.column)
    for text in inputs.texts():
        if "[MASK]" not in spell_masks(f"{text.text_a} {text.text_b}"):
            spelled = "[mask]" in str(text).lower() or "<mask>" in str(text)
            fix = ": write [MASK], in capitals" if spelled else ""
            raise UserError(f"There is no [MASK] in {str(text)!r:.80}{fix}.")
    check_output(flags.output, OBJECTS, inputs.paths)
    inputs.print_notes()
    model = load_model(flags)
    from bert_jax.inference.scoring import check_fills_masks

    check_fills_masks(model)
    write_or_print(model, inputs, flags.output, flags.top_k)


def _fill_held_out(flags: argparse.Namespace) -> None:
    model = load_model(flags)
    from bert_jax.inference.scoring import check_fills_masks
    from bert_jax.tools.outputs.predictions import stream
    from bert_jax.tools.outputs.samples import held_out_sentences

    check_fills_masks(model)
    sentences = held_out_sentences(model.config, model.folder, flags.held_out)
    inputs = Inputs((Source(values=tuple(text for text, _ in sentences)),))
    for (_, word), found in zip(sentences, stream(model, inputs, flags.top_k), strict=True):
        text, *candidates = readable(*found)
        print(f"{text}   ({word})", *candidates, sep="\n")
