"""Prints the ids or the pieces of texts, of the lines of files, or of standard input.

    bert_jax tokenize --vocab=vocab.txt --pieces "Unaffable, naïve."
    echo "Unaffable, naïve." | bert_jax tokenize --vocab=vocab.txt --pieces
    una ##ffa ##ble , naive .
    bert_jax tokenize --model=MODEL --pieces "Unaffable, naïve."

Prints one line for each text or line, without [CLS] and [SEP]. Invalid UTF-8 is replaced by U+FFFD,
and the number of such lines is reported on standard error.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("vocab", "", "A vocab.txt, a SentencePiece .model, or GPT's folder."),
    Flag("model", "", "A workdir, or another program's model, for its tokenizer."),
    Flag("cased", False, "Keep upper case and accents, with --vocab."),
    Flag("pieces", False, "Print pieces instead of ids."),
    Flag("TEXT", [], "texts, files, or - for standard input (the default)"),
)


def run(flags: argparse.Namespace) -> None:
    tokenizer = _tokenizer(flags)
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


def _tokenizer(flags: argparse.Namespace) -> Tokenizer:
    if bool(flags.vocab) == bool(flags.model):
        raise UserError(
            "Give --vocab, a vocab.txt, a SentencePiece .model or GPT's folder; or --model, a"
            " workdir or another program's model."
        )
    if flags.vocab:
        return load_tokenizer(flags.vocab, lowercase=not flags.cased)
    if flags.cased:
        raise UserError("--cased has no effect with --model, which knows its case: leave it out.")
    from bert_jax.formats import format_of, open_checkpoint
    from bert_jax.formats.hub import local_model

    path = local_model(flags.model)
    if format_of(path) != "workdir":
        return open_checkpoint(path).tokenizer()
    from bert_jax.config import store
    from bert_jax.training.workdir import load_workdir_tokenizer

    return load_workdir_tokenizer(path, store.load(path))


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
