"""The commands features and score as a user starts them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.inference.conftest import REPOSITORY

# Runs command lines one after the other; "jax" is a module that cannot be imported.
_RUN_WITHOUT_JAX = """
import contextlib, io, json, sys
sys.modules["jax"] = None
from bert_jax.__main__ import main
from bert_jax.tools.cli.flags import command_line
results = []
for words in json.load(sys.stdin):
    sys.argv = ["bert_jax", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command_line.run(main)
        except SystemExit as exit:
            code = exit.code
    results.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(results))
"""
INVALID = {
    "features": {
        "": "--output is missing: give --workdir=DIR --input=FILE --output=FILE.",
        "--output=x.h5": "--output=x.h5: the ending says the form",
        "--output=x.npz --pooling=max": "--pooling is for --level=sentence, but --level is sub",
        "--output=x.npz --word=first": "--word is for --level=word, but --level is subword.",
        "--output=x.npz --weights=1,a": "--weights=1,a are not numbers: give for example 0.1,0.2",
        "--output=x.npz --layers=lst": "--layers=lst must be one of last, second_to_last,",
        "--output=lost/x.npz": "--output=lost/x.npz: there is no folder lost.",
        "--output=x.npz --input=lost": "--input=lost: there is no such file.",
        "--output=x.npz --batch_tokens=0": "argument --batch_tokens: 0 must be at least 1",
    },
    "attention": {
        "is": "--config is missing",
        "--workdir=WORKDIR": "Give a text, for example",
        "--workdir=WORKDIR a b c": "3 texts are given: give one, or the two of a pair.",
        "--workdir=WORKDIR --held_out --input=setup.py": "--held_out and --input are two samples",
        "--workdir=WORKDIR is --output=x.svg": "--output=x.svg: the ending says the form, .html",
        "--workdir=WORKDIR is --output=lost/x.npz": "--output=lost/x.npz: there is no folder",
        "--config=configs/elmo.py --workdir=run is --output=x.npz": "run has the model 'elmo', whi",
    },
    "score": {
        "is": "--config is missing",
        "--workdir=WORKDIR": "Give either texts, for example",
        "--workdir=WORKDIR --input=in.txt is": "Give either texts, for example",
        "--workdir=WORKDIR --input=lost.txt": "--input=lost.txt: there is no such",
        "--workdir=WORKDIR is --output=lost/x": "--output=lost/x: there is no fol",
    },
}


def start(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env=os.environ | environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("command", INVALID)
def test_an_invalid_value_is_reported_in_one_line_without_jax(command, workdir):
    always = [f"--workdir={workdir}", "--input=setup.py"] if command == "features" else []
    lines = [
        [command, *always, *flags.replace("WORKDIR", workdir).split()] for flags in INVALID[command]
    ]
    done = start("-c", _RUN_WITHOUT_JAX, stdin=json.dumps(lines))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for (code, out, err), message in zip(results, INVALID[command].values(), strict=True):
        assert (code, out) == (2, ""), err
        assert err.startswith(f"error: {message}")
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["features", "score"])
def test_help_shows_the_flags(command):
    done = start("-m", "bert_jax", command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m bert_jax {command}" in done.stdout
    assert "--batch_tokens" in done.stdout


def test_features_on_the_command_line(workdir, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.npz"
    source.write_bytes(b"the list is returned.\nnaive\n")
    flags = ["--layers=weighted_sum", "--weights=1,2", "--level=word", "--word=first"]
    files = [f"--workdir={workdir}", f"--input={source}", f"--output={output}"]
    done = start("-m", "bert_jax", "features", *files, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hidden_states    float32[1, 2, 5, 16]" in done.stdout
    assert np.load(output)["hidden_states"].shape == (1, 2, 5, 16)
