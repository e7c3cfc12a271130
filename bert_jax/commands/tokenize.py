"""Prints the ids, or the pieces, of each line of text.

    $ echo "Unaffable, naïve." | python -m bert_jax.tokenize --vocab=vocab.txt --pieces
    una ##ffa ##ble , naive .

One line out for each line in, without [CLS] and [SEP]. Text that is no UTF-8 is read with U+FFFD in
its place, and counted on standard error.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from bert_jax.text.tokenization import Tokenizer, load_tokenizer


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help).")


def main(argv: Sequence[str]) -> None:
    """Tokenizes standard input.

    Raises:
      ValueError: a flag or the vocabulary is not right.
    """
    parser = _Parser(prog="bert_jax.tokenize", description="Prints the ids of each line of text.")
    parser.add_argument("--vocab", required=True, help="a vocab.txt, or a SentencePiece .model")
    parser.add_argument("--cased", action="store_true", help="keep upper case and accents")
    parser.add_argument("--pieces", action="store_true", help="print pieces instead of ids")
    flags = parser.parse_args(argv)
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


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
