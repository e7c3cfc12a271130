"""Shows what the attention heads of a model look at, and what its layers would predict.

    bert_jax attention --model=MODEL "The [MASK] of the list." --output=attention.html
    bert_jax attention --model=MODEL "A question?" "Its answer." --output=attention.npz
    bert_jax attention --model=MODEL --held_out=200 --output=heads.html
    bert_jax attention --model=MODEL --input=FILE "A text." --output=attention.html

One text is shown, or a pair: all heads, any of them between the tokens or words, and what every
layer would predict for a [MASK], or as the next token. Statistics of the heads (entropy, distance,
attention to the separator, to the next token, ...) are those of the text; with --held_out or
--input also those of some texts of the held-out split, or of a file as `predict` reads it. The
ending of --output determines the form: a page, which opens offline, or the arrays.
docs/attention.md explains both.
"""

import argparse
import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.data.labelled.texts import Text
from bert_jax.files.atomic import whole_file, write_bytes
from bert_jax.files.errors import UserError
from bert_jax.scores.attention import STATISTICS, strongest_heads
from bert_jax.tools.cli.command_line import TRAINED, Flag, load_model
from bert_jax.tools.outputs.files import check_output
from bert_jax.tools.pages.attention import Origin, attention_page, check_size

if TYPE_CHECKING:
    from bert_jax.inference.attention import AttentionReader

FLAGS = (
    *TRAINED,
    Flag("output", "", "File to write: .html or .npz."),
    Flag("held_out", 0, "Held-out rows to compute statistics from, too.", minimum=0),
    Flag("input", "", "Also statistics over a file, as predict reads it."),
    Flag("sample", 200, "Examples of the file to compute them from.", minimum=1),
    Flag("top_k", 5, "Words that are listed of each prediction.", minimum=1),
    Flag("TEXT", [], "one text, or the two of a pair"),
)
_SHOWN_HEADS = 3


def run(flags: argparse.Namespace) -> None:
    _check_flags(flags)
    model = load_model(flags)
    from bert_jax.inference.attention import AttentionReader
    from bert_jax.inference.predictor import Predictor

    reader = AttentionReader(Predictor(model), flags.top_k)
    arrays, sample = _compute(reader, flags)
    _print_heads(arrays)
    if flags.text and reader.no_lens:
        print(f"no predictions of the layers: {reader.no_lens}")
    if flags.output.endswith(".npz"):
        with whole_file(flags.output) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        for name, array in arrays.items():
            print(f"{name:<24} {array.dtype}[{', '.join(map(str, array.shape))}]")
    else:
        about = f"{model.encoder.name} for {model.config.task.name}: {_describe(reader.config)}"
        origin = Origin(
            os.path.basename(model.folder), about, tuple(flags.text), sample, reader.no_lens
        )
        # An argument that is not UTF-8 has lone surrogates.
        page = attention_page(origin, arrays).encode(errors="replace")
        write_bytes(flags.output, page)
        print(f"{flags.output}: {len(page) / 1e6:.1f} MB")


def _check_flags(flags: argparse.Namespace) -> None:
    if len(flags.text) > 2:
        raise UserError(f"{len(flags.text)} texts are given: give one, or the two of a pair.")
    if flags.held_out and flags.input:
        raise UserError("--held_out and --input are two samples: give one of them.")
    if not flags.text and not flags.held_out and not flags.input:
        raise UserError('Give a text, for example "The list is returned.", or --held_out=200.')
    if not flags.output.endswith((".html", ".npz")):
        raise UserError(f"--output={flags.output}: the ending says the form, .html or .npz.")
    if flags.input and not os.path.isfile(flags.input):
        raise UserError(f"--input={flags.input}: there is no such file.")
    check_output(flags.output, (".html", ".npz"), filter(None, [flags.input]))


def _compute(
    reader: "AttentionReader", flags: argparse.Namespace
) -> tuple[dict[str, np.ndarray], str]:
    """Returns the arrays of the text, of the sample or of both, and what the sample is."""
    from bert_jax.tools.outputs.samples import sample_batches

    arrays: dict[str, np.ndarray] = {"statistics": np.array(list(STATISTICS))}
    if flags.text:
        row = reader.encode(Text(*flags.text))
        if flags.output.endswith(".html"):
            check_size(reader.config.num_layers, reader.config.num_heads, len(row.input_ids))
        arrays |= reader.read(row)
    if not flags.held_out and not flags.input:
        return arrays, ""
    counts = Counter()
    batches = sample_batches(reader.model, flags.input, flags.held_out or flags.sample, counts)
    arrays["sample_statistics"], rows, tokens = reader.statistics(batches)
    where = flags.input or "the held-out split"
    cut = f"; {n:,} tokens of its texts are cut off" if (n := counts["tokens_cut_off"]) else ""
    return arrays, f"{rows:,} rows of {where}, in which {tokens:,} tokens attend{cut}"


def _describe(model: TransformerConfig) -> str:
    """Returns "12 layers of 12 heads, hidden size 768, bidirectional attention"."""
    window = f" of {model.attention_window}" if model.attention_window else ""
    return (
        f"{model.num_layers} layers of {model.num_heads} heads, hidden size {model.hidden_size},"
        f" {model.attention_pattern}{window} attention"
    )


def _print_heads(arrays: Mapping[str, np.ndarray]) -> None:
    """Prints the heads with the highest value of each statistic, counted from 1."""
    source = "sample" if "sample_statistics" in arrays else "text"
    print(f"heads with the highest values over the {source}")
    values_of_heads = arrays[f"{source}_statistics"]
    for statistic, values in zip(STATISTICS.values(), values_of_heads, strict=True):
        heads = ", ".join(
            f"layer {layer + 1} head {head + 1} {value:.3f}"
            for layer, head, value in strongest_heads(values, _SHOWN_HEADS)
        )
        print(f"{statistic.title:<28} {heads}")
