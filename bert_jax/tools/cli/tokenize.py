"""Prints the ids or the pieces of each line of standard input.

    echo "Unaffable, naïve." | python -m bert_jax tokenize --vocab=vocab.txt --pieces
    una ##ffa ##ble , naive .

Prints one line for each line, without [CLS] and [SEP]. Invalid UTF-8 is replaced by U+FFFD, and the
number of such lines is reported on standard error.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax tokenize", __doc__)
    parser.flag(
        "vocab", "", "A vocab.txt, a SentencePiece .model, or GPT's folder.", metavar="FILE"
    )
    parser.switch("cased", "Keep upper case and accents.")
    parser.switch("pieces", "Print pieces instead of ids.")
    flags = parser.parse(argv)
    if not flags.vocab:
        raise UserError(
            "--vocab is missing: a vocab.txt, or a SentencePiece .model. GPT's is a folder."
        )
    tokenizer = load_tokenizer(flags.vocab, lowercase=not flags.cased)
    output = open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False)
    num_bad = 0
    with output:
        for line, is_bad in _decoded(sys.stdin.buffer):
            num_bad += is_bad
            output.write(_tokenized(line, tokenizer, flags.pieces) + "\n")
    if num_bad:
        print(f"Lines with invalid UTF-8, replaced by U+FFFD: {num_bad}", file=sys.stderr)


def _decoded(lines: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    for line in lines:
        try:
            yield line.decode(), False
        except UnicodeDecodeError:
            yield line.decode(errors="replace"), True


def _tokenized(line: str, tokenizer: Tokenizer, as_pieces: bool) -> str:
    ids = tokenizer.encode(line)
    return " ".join(map(tokenizer.pieces.__getitem__, ids) if as_pieces else map(str, ids))
