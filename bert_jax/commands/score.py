"""Prints how likely texts are to a pre-trained model, each token masked in turn.

    python -m bert_jax.score --workdir=DIR "The list is returned." "List the returned is."
    python -m bert_jax.score --workdir=DIR --input=FILE [--output=FILE.jsonl]

Input: a text a line, or a JSON object a line with `text_a` and, for a pair, `text_b`. Without
--output a table is printed; with it, a JSON object a line is written:

    {"pseudo_log_likelihood": -9.1, "tokens": 5, "unknown_tokens": 0, "per_token": -1.82,
     "perplexity": 6.2, "log_probabilities": [{"token": "the", "log_probability": -0.6}, ...]}

The pseudo-log-likelihood is the sum over all tokens, [CLS] and [SEP] apart, of
ln p(token | all others); the perplexity is exp(-per_token).
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_jax.commands import command_line
from bert_jax.files.atomic import whole_file
from bert_jax.inference.texts import Text, check_files, read_texts

if TYPE_CHECKING:
    from bert_jax.inference.model import Progress
    from bert_jax.inference.scoring import Scorer

FLAGS = flags.FLAGS

Texts = Callable[[], Iterable[Text]]


def main(argv: Sequence[str]) -> None:
    flags.DEFINE_string("workdir", "", "Folder of a trained run, or of imported weights.")
    flags.DEFINE_string("input", "", "File to read, a text or a JSON object a line.")
    flags.DEFINE_string("output", "", "File to write, a JSON object a line; empty: print a table.")
    flags.DEFINE_integer("batch_tokens", 4096, "Token slots of a batch.", lower_bound=1)
    config, words = command_line.parse_with_words(argv)
    if not FLAGS.workdir:
        raise ValueError("--workdir is missing: the folder of a trained run.")
    if bool(words) == bool(FLAGS.input):
        raise ValueError('Give either texts, for example "The list is returned.", or --input=FILE.')
    check_files(FLAGS.input, FLAGS.output)

    def texts() -> Iterable[Text]:
        return read_texts(FLAGS.input) if FLAGS.input else map(Text, words)

    from bert_jax.inference.scoring import Scorer

    scorer = Scorer(config, FLAGS.workdir, FLAGS.batch_tokens)
    if FLAGS.output:
        write_scores(scorer, texts, FLAGS.output)
    else:
        print_scores(scorer, texts)


def write_scores(scorer: "Scorer", texts: Texts, output: str) -> None:
    """Writes a JSON object for each text; the file is there whole or not at all."""
    with whole_file(output) as path, open(path, "w", encoding="utf-8") as file:

        def write(_: Text, score: dict[str, Any], __: "Progress") -> None:
            file.write(json.dumps(score, ensure_ascii=False) + "\n")

        _score(scorer, texts, write, f"texts scored in {output}")


def print_scores(scorer: "Scorer", texts: Texts) -> None:
    """Prints a line for each text: its score, the mean by token, tokens, perplexity, the text."""
    print(f"{'PLL':>10} {'per token':>10} {'tokens':>7} {'perplexity':>11}  text")

    def show(text: Text, score: dict[str, Any], progress: "Progress") -> None:
        mean = perplexity = "-"
        if score["tokens"]:
            mean, perplexity = f"{score['per_token']:.3f}", f"{score['perplexity']:,.1f}"
        total = score["pseudo_log_likelihood"]
        progress.line(f"{total:10.3f} {mean:>10} {score['tokens']:>7} {perplexity:>11}  {text}")

    _score(scorer, texts, show, "texts scored")


def _score(
    scorer: "Scorer",
    texts: Texts,
    take: Callable[[Text, dict[str, Any], "Progress"], None],
    what: str,
) -> None:
    """Gives each text and its score to `take`, once all texts are known to be right."""
    from bert_jax.inference.model import Progress

    lengths = [len(scorer.model.row(text).word_positions) for text in texts()]
    progress = Progress(sum(lengths))
    total = 0.0
    scores = scorer.score(map(scorer.model.row, texts()), progress)
    for text, score in zip(texts(), scores, strict=True):
        total += score["pseudo_log_likelihood"]
        take(text, score, progress)
    progress.finish(len(lengths), what)
    if tokens := sum(lengths):
        print(f"all {tokens:,} tokens together: perplexity {math.exp(-total / tokens):,.1f}")


if __name__ == "__main__":
    command_line.run(main)
