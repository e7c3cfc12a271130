"""Computes vectors of texts, or of their words or tokens, with a trained model.

    bert_jax encode texts.txt --model=MODEL --output=vectors.npz
    bert_jax encode --model=MODEL "A cat." "A dog."
    bert_jax encode articles.txt --model=MODEL --output=vectors.npz --windows
    bert_jax encode texts.txt --model=MODEL --output=words.jsonl --level=word
    bert_jax encode texts.txt --model=MODEL --output=words.jsonl --sparse

A word is a file if there is one of that name, - is standard input, anything else is a text. A file
has a text on each line, or a JSON object with `text_a` and, for a pair, `text_b`; of a table (CSV,
TSV, JSON lines, Parquet) the column of texts is read, or --column. The ending of
--output determines the format: .npz, .safetensors, or .jsonl and .parquet with the same arrays for
each text, in the order of the input; - prints JSON lines. docs/encode.md lists the arrays.

--sparse computes weights of words (SPLADE): JSON lines {"token": weight}, the largest first, or a
.npz that scipy.sparse.load_npz reads.

--multi computes the vectors of tokens that MaxSim compares (ColBERT), as --level=subword writes
hidden states.

A text with more tokens than the model takes is an error: --truncate cuts off its end, --windows
reads it in overlapping windows, from which each token is taken once.

With AMX, or AVX512-BF16 of AMD, sentence vectors of a float32 model are computed with rounded
products (cosine at least 0.9999); --config.dtype=float32 computes them without rounding.
"""

import argparse
import json
import sys

import numpy as np

from bert_jax.data.labelled.texts import TextRow
from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.sparse import named_weights
from bert_jax.tools.cli.command_line import (
    BATCH_TOKENS,
    COLUMN,
    EXACT,
    INPUTS,
    TRAINED,
    Flag,
    load_model,
)
from bert_jax.tools.outputs.files import ARRAYS, SPARSE, as_lists, check_output
from bert_jax.tools.outputs.inputs import find_inputs

# Numbers of a vector that are printed.
_SHOWN = 6
FLAGS = (
    *TRAINED,
    EXACT,
    Flag(
        "output", "", "File to write: .npz, .safetensors, .jsonl or .parquet; - prints JSON lines."
    ),
    Flag(
        "layers",
        "last",
        "last, second_to_last, concat_last_4, sum_last_4, weighted_sum, all, or directions (ELMo).",
    ),
    Flag("weights", "", "weighted_sum: of the last layers, the last layer's last."),
    Flag("level", "sentence", "What a vector represents: sentence, word or subword."),
    Flag("word", "", "Word: first or mean of its pieces (default: mean)."),
    Flag("pooling", "", "Sentence: mean or max of all, or cls (default: the model's, else mean)."),
    Flag("normalize", None, "Scale each vector to length 1 (default: as the model says)."),
    Flag("prompt", "", "Text before each text, or the name of a prompt of the model."),
    Flag("dimensions", 0, "Sentence: first dimensions to keep; 0: all.", minimum=0),
    Flag("sparse", False, "Weights of words, of a masked-LM head (SPLADE): .jsonl or .npz."),
    Flag("multi", False, "The vectors of tokens of a model trained with --task=colbert."),
    Flag("truncate", False, "Cut off the end of texts that are too long."),
    Flag("windows", False, "Read texts that are too long in overlapping windows."),
    Flag("stride", 0, "Tokens between the starts of windows; 0: half of a window.", minimum=0),
    BATCH_TOKENS,
    COLUMN,
    INPUTS,
)


def run(flags: argparse.Namespace) -> None:
    choice = _choice(flags)
    inputs = find_inputs(flags.text, flags.column)
    is_file = bool(check_output(flags.output, SPARSE if flags.sparse else ARRAYS, inputs.paths))
    inputs.print_notes()
    if not flags.output and choice.level != "sentence":
        raise UserError(f"--output is missing: the file for the vectors of each {choice.level}.")

    model = load_model(flags)
    from bert_jax.inference.features import FeatureExtractor
    from bert_jax.inference.predictor import Predictor
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.features import extract

    extractor = FeatureExtractor(Predictor(model, flags.batch_tokens), choice)
    if is_file:
        extract(extractor, inputs, flags.output, Terminal())
        return
    texts = tokens = 0
    for row, found in extractor.run(map(extractor.row, inputs.texts())):
        texts, tokens = texts + (row.cut > 0), tokens + row.cut
        if flags.sparse:
            weights = named_weights(found["embeddings"], model.tokenizer.pieces)
            print(json.dumps(weights, ensure_ascii=False) if flags.output else _shown(weights, row))
        elif flags.output:
            named = extractor.names(row, found) | found
            print(json.dumps(as_lists(named), ensure_ascii=False))
        else:
            vector = found["embeddings"]
            start = " ".join(f"{value:7.4f}" for value in vector[:_SHOWN])
            about = f"{len(vector)} numbers, length {np.linalg.norm(vector):.2f}"
            print(f"{start} ...   ({about})   {row.text}")
    if texts:
        print(f"truncated  {texts:,} texts: {tokens:,} tokens are cut off", file=sys.stderr)


def _shown(weights: dict[str, float], row: TextRow) -> str:
    words = " ".join(f"{word} {weight:.2f}" for word, weight in list(weights.items())[:_SHOWN])
    return f"{words} ...   ({len(weights):,} words)   {row.text}"


def _choice(flags: argparse.Namespace) -> Choice:
    for name, level in (("word", "word"), ("pooling", "sentence")):
        if getattr(flags, name) and flags.level != level:
            raise UserError(f"--{name} is for --level={level}, but --level is {flags.level}.")
    if flags.truncate and flags.windows:
        raise UserError("--truncate and --windows exclude each other.")
    long = "truncate" if flags.truncate else "windows" if flags.windows else "error"
    return Choice(
        layers=flags.layers,
        weights=_numbers(flags.weights),
        level="subword" if flags.multi else flags.level,
        word=flags.word or "mean",
        pooling=flags.pooling,
        normalize=flags.normalize,
        long=long,
        stride=flags.stride,
        prompt=flags.prompt,
        dimensions=flags.dimensions,
        sparse=flags.sparse,
        multi=flags.multi,
        keeps_dtype="dtype" in flags.overrides,
    )


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(","))) if text else ()
    except ValueError:
        raise UserError(
            f"--weights={text} are not numbers: give for example 0.1,0.2,0.3,0.4."
        ) from None
