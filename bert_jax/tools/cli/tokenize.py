"""Prints the ids or the pieces of texts, of the lines of files, or of standard input.

    bert_jax tokenize --vocab=vocab.txt --pieces "Unaffable, naïve."
    echo "Unaffable, naïve." | bert_jax tokenize --vocab=vocab.txt --pieces
    una ##ffa ##ble , naive .

Prints one line for each text or line, without [CLS] and [SEP]. Invalid UTF-8 is replaced by U+FFFD,
and the number of such lines is reported on standard error.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag(
        "vocab",
        "",
        "A vocab.txt, a SentencePiece .model, or GPT's folder.",
        missing="a vocab.txt, or a SentencePiece .model. GPT's is a folder",
    ),
    Flag("cased", False, "Keep upper case and accents."),
    Flag("pieces", False, "Print pieces instead of ids."),
    Flag("TEXT", [], "texts, files, or - for standard input (the default)"),
)


def run(flags: argparse.Namespace) -> None:
    tokenizer = load_tokenizer(flags.vocab, lowercase=not flags.cased)
    name = tokenizer.pieces.__getitem__ if flags.pieces else str
    num_bad = 0
    with open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False) as output:
        for line in _lines(flags.text):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                text, num_bad = line.decode(errors="replace"), num_bad + 1
            output.write(" ".join(map(name, tokenizer.encode(text))) + "\n")
    if num_bad:
        print(f"Lines with invalid UTF-8, replaced by U+FFFD: {num_bad}", file=sys.stderr)


def _lines(words: Sequence[str]) -> Iterator[bytes]:
    if not words or list(words) == ["-"]:
        yield from sys.stdin.buffer  # as they come
        return
    from bert_jax.tools.outputs.inputs import find_inputs

    for source in find_inputs(words).sources:
        if source.path:
            with open(source.path, "rb") as file:
                yield from file
        else:
            yield from (text.encode() for text in source.values)
