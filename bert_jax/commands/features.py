"""Writes what a trained model makes of texts: vectors of sub-words, words or sentences.

    python -m bert_jax.features --workdir=DIR --input=FILE --output=FILE.npz
    python -m bert_jax.features --workdir=DIR --input=FILE --output=FILE.jsonl \\
        --level=sentence --pooling=mean --normalize

Input: a text a line, or a JSON object a line with `text_a` and, for a pair, `text_b`. The ending of
--output says the form: .npz, .safetensors, or .jsonl with the same arrays for each text, in the
order of the input. README, "Features, scores", lists the arrays.
"""

from collections.abc import Sequence

from absl import flags

from bert_jax.commands import command_line
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.feature_files import check_ending
from bert_jax.inference.texts import check_files

FLAGS = flags.FLAGS


def main(argv: Sequence[str]) -> None:
    flags.DEFINE_string("workdir", "", "Folder of a trained run, or of imported weights.")
    flags.DEFINE_string("input", "", "File to read, a text or a JSON object a line.")
    flags.DEFINE_string("output", "", "File to write: .npz, .safetensors or .jsonl.")
    flags.DEFINE_string(
        "layers",
        "last",
        "last, second_to_last, concat_last_4, sum_last_4, weighted_sum or all.",
    )
    flags.DEFINE_list("weights", "", "weighted_sum: of the last layers, the last layer's last.")
    flags.DEFINE_string("level", "subword", "What a vector stands for: subword, word or sentence.")
    flags.DEFINE_string("word", None, "A word is the first or the mean of its pieces (mean).")
    flags.DEFINE_string("pooling", None, "A sentence is its cls, or mean or max of all (mean).")
    flags.DEFINE_bool("normalize", False, "Scale each vector to length 1.")
    flags.DEFINE_integer("batch_tokens", 4096, "Token slots of a batch.", lower_bound=1)
    config = command_line.parse(argv, workdir_is_enough=True)
    for name in ("workdir", "input", "output"):
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is missing: give --workdir=DIR --input=FILE --output=FILE.")
    for name, level in (("word", "word"), ("pooling", "sentence")):
        if FLAGS[name].value and FLAGS.level != level:
            raise ValueError(f"--{name} is for --level={level}, and --level is {FLAGS.level}.")
    weights = _numbers(FLAGS.weights)

    choice = Choice(
        layers=FLAGS.layers,
        weights=weights,
        level=FLAGS.level,
        word=FLAGS.word or "mean",
        pooling=FLAGS.pooling or "mean",
        normalize=FLAGS.normalize,
    )
    check_files(FLAGS.input, FLAGS.output)
    check_ending(FLAGS.output)

    from bert_jax.inference.feature_extraction import FeatureExtractor, extract
    from bert_jax.inference.model import TrainedModel

    model = TrainedModel(config, FLAGS.workdir, FLAGS.batch_tokens)
    extract(FeatureExtractor(model, choice), FLAGS.input, FLAGS.output)


def _numbers(words: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(map(float, words))
    except ValueError:
        raise ValueError(
            f"--weights={','.join(words)} are no numbers: give for example 0.1,0.2,0.3,0.4."
        ) from None


if __name__ == "__main__":
    command_line.run(main)
