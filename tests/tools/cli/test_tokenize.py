"""The command `tokenize`: bytes on standard input and output, as it is run from a shell."""

import contextlib
import subprocess
import sys

import pytest

from bert_jax.text.tokenization import SPECIAL_TOKENS

WORDS = (*SPECIAL_TOKENS, "the", "una", "##ffa", "##ble", "naive", "The", "[", "]", "mask", ".")

# The command needs no jax, whose import takes seconds.
WITHOUT_JAX = """
import runpy, sys
sys.modules["jax"] = None
runpy.run_module("bert_jax", run_name="__main__")
"""


@pytest.fixture
def command(tmp_path) -> list[str]:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS))
    return [sys.executable, "-c", WITHOUT_JAX, "tokenize", f"--vocab={path}"]


@pytest.mark.parametrize(
    "flags, text, output, errors",
    [
        ([], "The unaffable\n\nnaïve.\r\n[MASK]".encode(), b"5 6 7 8\n\n9 14\n11 13 12\n", b""),
        (["--pieces", "--cased"], "The naïve".encode(), b"The [UNK]\n", b""),
        (
            ["--pieces"],
            b"the unaffable \xff\nthe\n",
            b"the una ##ffa ##ble\nthe\n",
            b"Lines with invalid UTF-8, replaced by U+FFFD: 1\n",
        ),
    ],
)
def test_a_line_for_each_line_of_text(flags, text, output, errors, command):
    done = subprocess.run([*command, *flags], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, errors)


def test_texts_and_files_are_read_in_order(command, tmp_path):
    (tmp_path / "two.txt").write_text("the\n.\n")
    words = [*command, "The unaffable", "two.txt", "mask"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True)
    assert (done.stdout, done.stderr) == (b"5 6 7 8\n5\n14\n13\n", b"")


def test_it_streams_and_stops_quietly_when_nobody_reads(command):
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"the the the\n" * 5000)
        assert process.stdout.readline() == b"5 5 5\n"  # before the end of the text
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"the the the\n" * 100_000)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
