"""The completion script, run by bash on the words before the cursor."""

import contextlib
import io
import shutil
import subprocess
import sys

import pytest

from bert_jax.__main__ import main
from bert_jax.tools.cli import COMMANDS

pytest.importorskip("shtab", reason="needs shtab: pip install -c constraints.txt '.[completion]'")

# What readline does: it splits words at "=", too.
_COMPLETE = """
COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDS=("${@:2}")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_bert_jax
printf "%s\\n" "${COMPREPLY[@]}"
"""


def script(shell: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["completion", shell])
    return out.getvalue()


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    if shutil.which("bash") is None:
        pytest.skip("bash is missing")
    folder = tmp_path_factory.mktemp("files")
    (folder / "corpus.txt").touch()
    source = script("bash") + _COMPLETE

    def run(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ")
        if line.endswith("="):
            words.pop()
        done = subprocess.run(
            ["bash", "-c", source, "bash", line, *words], cwd=folder, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return run


@pytest.mark.parametrize(
    "line, expected",
    [
        ("bert_jax fi", ["finetune", "fill_mask"]),
        ("bert_jax convert to_hf --no", ["--nocomparison"]),
        ("bert_jax convert to_onnx --output=v", ["vectors"]),
        ("bert_jax train --conf", ["--config=", "--config."]),
        ("bert_jax ", list(COMMANDS)),
        ("bert_jax encode --model=corp", ["corpus.txt"]),
    ],
)
def test_bash_completes_commands_flags_values_and_files(complete, line, expected):
    assert complete(line) == expected


def test_zsh_has_a_script_and_without_shtab_its_extra_is_named(monkeypatch):
    assert script("zsh").startswith("#compdef bert_jax\n") and "--config.-[" in script("zsh")
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(ValueError, match=r"^completion needs shtab: pip install "):
        script("bash")
