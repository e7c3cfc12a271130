"""Writes vectors of tokens, words or sentences, computed by a trained model.

    python -m bert_jax features --model=MODEL --input=FILE --output=FILE.npz
    python -m bert_jax features --model=MODEL --input=FILE --output=FILE.jsonl \\
        --level=sentence --pooling=mean --normalize

The input has a text on each line, or a JSON object with `text_a` and, for a pair, `text_b`. The
ending of --output determines the format: .npz, .safetensors, or .jsonl with the same arrays for
each text, in the order of the input. docs/features.md lists the arrays.
"""

import argparse

from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.tools.cli.command_line import BATCH_TOKENS, TRAINED, Flag, load_model
from bert_jax.tools.outputs.files import check_ending, check_output

_FILES = "give --model=MODEL --input=FILE --output=FILE"
FLAGS = (
    *TRAINED,
    Flag("input", "", "File to read, a text or a JSON object a line.", missing=_FILES),
    Flag("output", "", "File to write: .npz, .safetensors or .jsonl.", missing=_FILES),
    Flag(
        "layers",
        "last",
        "last, second_to_last, concat_last_4, sum_last_4, weighted_sum, all, or directions (ELMo).",
    ),
    Flag("weights", "", "weighted_sum: of the last layers, the last layer's last."),
    Flag("level", "subword", "What a vector represents: subword, word or sentence."),
    Flag("word", "", "Word: first or mean of its pieces (default: mean)."),
    Flag("pooling", "", "Sentence: cls, or mean or max of all (default: mean)."),
    Flag("normalize", False, "Scale each vector to length 1."),
    BATCH_TOKENS,
)


def run(flags: argparse.Namespace) -> None:
    for name, level in (("word", "word"), ("pooling", "sentence")):
        if getattr(flags, name) and flags.level != level:
            raise UserError(f"--{name} is for --level={level}, but --level is {flags.level}.")
    choice = Choice(
        layers=flags.layers,
        weights=_numbers(flags.weights),
        level=flags.level,
        word=flags.word or "mean",
        pooling=flags.pooling or "mean",
        normalize=flags.normalize,
    )
    check_output(flags.output, [flags.input])
    check_ending(flags.output)

    model = load_model(flags)
    from bert_jax.inference.features import FeatureExtractor
    from bert_jax.inference.predictor import Predictor
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.features import extract

    extractor = FeatureExtractor(Predictor(model, flags.batch_tokens), choice)
    extract(extractor, flags.input, flags.output, Terminal())


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(","))) if text else ()
    except ValueError:
        raise UserError(
            f"--weights={text} are not numbers: give for example 0.1,0.2,0.3,0.4."
        ) from None
