"""The command `python -m bert_jax tokenize`, as it is run from a shell."""

import contextlib
import subprocess
import sys

import pytest

from bert_jax.text.tokenization import SPECIAL_TOKENS

WORDS = (*SPECIAL_TOKENS, "the", "una", "##ffa", "##ble", "naive", "The", "[", "]", "mask", ".")


@pytest.fixture
def vocab(tmp_path) -> str:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS))
    return f"--vocab={path}"


def run(*arguments: str, text: bytes = b"", python: tuple[str, ...] = ()):
    command = [sys.executable, *python, "-m", "bert_jax", "tokenize", *arguments]
    return subprocess.run(command, input=text, capture_output=True)


def test_a_line_of_ids_for_each_line_of_text(vocab):
    done = run(vocab, text="The unaffable\n\nnaïve.\r\n[MASK]".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"5 6 7 8\n\n9 14\n11 13 12\n"


def test_pieces_and_case(vocab):
    done = run(vocab, "--pieces", text=b"The unaffable")
    assert done.stdout == b"the una ##ffa ##ble\n"
    done = run(vocab, "--pieces", "--cased", text="The naïve".encode())
    assert done.stdout == b"The [UNK]\n"


def test_invalid_utf8_is_replaced_and_counted(vocab):
    done = run(vocab, "--pieces", text=b"the \xff the\nthe\n")
    assert (done.returncode, done.stdout) == (0, b"the the\nthe\n")
    assert done.stderr == b"Lines with invalid UTF-8, replaced by U+FFFD: 1\n"


def test_it_streams_and_stops_quietly_when_nobody_reads(vocab):
    command = [sys.executable, "-m", "bert_jax", "tokenize", vocab]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes)
    process.stdin.write(b"the the the\n" * 5000)
    assert process.stdout.readline() == b"5 5 5\n"  # before the end of the text
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"the the the\n" * 100_000)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--vocab is missing: a vocab.txt, or a SentencePiece .model."),
        (["--vocab=missing.txt"], "The vocabulary missing.txt cannot be read"),
        (["--vocab=vocab.bin"], "vocab.bin is not a known kind of vocabulary"),
        (["--vocab=vocab.txt", "--piece"], "Unknown flag --piece: did you mean --pieces?"),
        (["--vocab=vocab.txt", "--foo"], "Unknown flag --foo: see --help."),
        (["--vocab=vocab.txt", "text"], "'text' is not a flag: flags begin with two dashes."),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, message):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
    assert done.stderr.startswith(b"error: ") and done.stderr.count(b"\n") == 1


def test_it_starts_without_jax(vocab):
    done = run(vocab, text=b"the", python=("-X", "importtime"))
    modules = {line.split(b"|")[-1].strip() for line in done.stderr.splitlines()}
    assert b"numpy" in modules
    assert not {b"jax", b"flax", b"absl", b"sentencepiece"} & modules
