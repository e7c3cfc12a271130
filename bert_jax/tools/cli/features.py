"""Writes vectors of tokens, words or sentences, computed by a trained model.

    python -m bert_jax features --workdir=DIR --input=FILE --output=FILE.npz
    python -m bert_jax features --workdir=DIR --input=FILE --output=FILE.jsonl \\
        --level=sentence --pooling=mean --normalize

The input has a text on each line, or a JSON object with `text_a` and, for a pair, `text_b`. The
ending of --output determines the format: .npz, .safetensors, or .jsonl with the same arrays for
each text, in the order of the input. docs/features.md lists the arrays.
"""

from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser
from bert_jax.tools.outputs.files import check_ending, check_files


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax features", __doc__)
    parser.flag("workdir", "", "Folder of a trained run, or of imported weights.")
    parser.flag("input", "", "File to read, a text or a JSON object a line.")
    parser.flag("output", "", "File to write: .npz, .safetensors or .jsonl.")
    parser.flag(
        "layers",
        "last",
        "last, second_to_last, concat_last_4, sum_last_4, weighted_sum, all, or directions (ELMo).",
    )
    parser.flag("weights", "", "weighted_sum: of the last layers, the last layer's last.")
    parser.flag("level", "subword", "What a vector represents: subword, word or sentence.")
    parser.flag("word", None, "Word: first or mean of its pieces (default: mean).")
    parser.flag("pooling", None, "Sentence: cls, or mean or max of all (default: mean).")
    parser.switch("normalize", "Scale each vector to length 1.")
    parser.flag("batch_tokens", 4096, "Positions of a batch, padding included.", least=1)
    run_flags.add_cache(parser)
    config, flags = configuration.parse_config(parser, argv, workdir_is_enough=True)
    for name in ("workdir", "input", "output"):
        if not getattr(flags, name):
            raise UserError(f"--{name} is missing: give --workdir=DIR --input=FILE --output=FILE.")
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
    check_files(flags.input, flags.output)
    check_ending(flags.output)

    run_flags.use_cache(flags)
    from bert_jax.inference.features import FeatureExtractor
    from bert_jax.inference.loading import load_workdir
    from bert_jax.inference.predictor import Predictor
    from bert_jax.tools.listeners.terminal import Terminal
    from bert_jax.tools.outputs.features import extract

    predictor = Predictor(load_workdir(config, flags.workdir), flags.batch_tokens)
    extract(FeatureExtractor(predictor, choice), flags.input, flags.output, Terminal())


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(","))) if text else ()
    except ValueError:
        raise UserError(
            f"--weights={text} are not numbers: give for example 0.1,0.2,0.3,0.4."
        ) from None
