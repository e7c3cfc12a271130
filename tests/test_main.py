"""All commands: their help, the error of each before jax is imported, and errors of a run."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from bert_jax import main
from bert_jax.__main__ import main as run_command
from bert_jax.tools.cli import COMMANDS, command_line

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TINY = "--config=configs/tiny.py"
WITH_CONFIGURATION = "train evaluate prepare".split()
# Runs command lines one after the other; "jax" is a module that cannot be imported.
WITHOUT_JAX = """
import contextlib, io, json, sys
sys.modules["jax"] = None
from tests.test_main import run
print(json.dumps([run(words) for words in json.load(sys.stdin)]))
"""


def run(words: list[str]) -> tuple[int, str, str]:
    """Runs a command line in this process; returns its exit code and what it prints."""
    of_main = words[:1] == ["bert_jax.main"]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = words if of_main else ["bert_jax", *words]
        try:
            command_line.run(main.main if of_main else run_command)
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def start(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env=os.environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=200,
    )


# Command line -> the beginning of its error; DIR is an empty folder.
EARLY_ERRORS = {
    "bert_jax.main --config=configs/tiny.py": "--workdir is missing: the folder that the run is",
    "bert_jax.main --config=configs/tiny.py --workdir=DIR --mode=tain": (
        "argument --mode: invalid choice: 'tain' (choose from "
    ),
    "bert_jax.main --workdir=DIR --config.seed=1": "--config is missing: give a file, for example",
    "bert_jax.main --mode predict --model=DIR": "Give texts, files, or - for standard input, for",
    "bert_jax.main --mode=predict --workdir=DIR x": "This command writes no workdir: name the mod",
    "finetune a.csv": "--model is missing: a workdir, or the folder of another program",
    "adapt a.txt": "--model is missing: a workdir, or the folder of another program",
    "train --workdir=DIR --config.seed=1": "--config is missing: give a file, for example",
    "multitask --workdir=DIR": "Give the tasks: NAME=CONFIG and NAME.FIELD=VALUE for each.",
    "predict --model=x lost.csv": "lost.csv: there is no such file. If it is a text, give it by",
    "predict --model=x setup.py --output=setup.py": "--output=setup.py is the input: name another",
    "answer --model=x --context=text": "--question is missing: give --question=QUESTION --context",
    "sweep": "--workdir is missing: the folder that the sweep",
    "report": "--workdir is missing: the folder of a run or a sweep.",
    "doctor --config.seed=1": "--config is missing",
    "tokenize": "Give --vocab, a vocab.txt, a SentencePiece .model or GPT's folder; or --model",
    "tokenize --model=x --cased": "--cased has no effect with --model, which knows its case",
    "tokenize --vocab=missing.txt": "The vocabulary missing.txt cannot be read",
    "encode --model=x --level=word is": "--output is missing: the file for the vectors of each",
    "score --model=DIR text": "DIR is neither a workdir (with checkpoints/), nor",
    "attention x": "--model is missing: a workdir, or the folder",
    "fill_mask --model=x": "Give texts, files, or - for standard input",
    "fill_mask --model=x lost": "There is no [MASK] in 'lost'.",
    "generate --model=x": "Give the beginning of a text",
    "serve --model=x --port=65536": "--port=65536 must be at most",
    "convert to_hff": "Unknown conversion 'to_hff'. Did you mean to_hf? Available: from_hf, ",
    "probe --model=quickstart": "the following arguments are required: DATA",
    "retrieval": "The retrieval command is missing. Available: evaluate, mine.",
    "convert": "The conversion is missing. Available: from_hf, from_google, from_openai, ",
    "squad_metrics x": "the following arguments are required: PREDICTIONS (see --help).",
    "completion fish": "No completion for 'fish'. Available: bash, zsh.",
    "trian": "Unknown command 'trian'. Did you mean train? Available: finetune, adapt,",
    "": "The command is missing. Available: finetune, adapt, train, evaluate, sweep,",
}
# Those of configurations, whose tasks import jax.
ERRORS = {
    "bert_jax.main --config=configs/tiny.py --workdir=DIR --config.stepz=1": (
        "There is no configuration field 'stepz'"
    ),
    "multitask --workdir=DIR a=configs/ner.py a.stepz=1": (
        "Task a: There is no configuration field 'stepz'"
    ),
    "evaluate --workdir=DIR --config=configs/ner.py --config.seeds=2": (
        "DIR holds the runs of several seeds: name the folder of one, DIR/seed-"
    ),
    "prepare --config=configs/tiny.py": "--data_dir is missing: the folder for vocabulary and",
    "prepare --config=configs/tiny.py --data_dir=DIR -- --parallelism=2": (
        "--parallelism=2 after -- is for the engine of --runner"
    ),
}


@pytest.fixture(scope="module")
def without_jax(tmp_path_factory):
    """Returns what the commands of EARLY_ERRORS print where jax cannot be imported, and DIR."""
    folder = str(tmp_path_factory.mktemp("empty"))
    lines = [line.replace("DIR", folder).split() for line in EARLY_ERRORS]
    done = start("-c", WITHOUT_JAX, stdin=json.dumps(lines))
    assert done.returncode == 0, done.stderr
    assert not os.listdir(folder)
    return dict(zip(EARLY_ERRORS, json.loads(done.stdout), strict=True)), folder


@pytest.mark.parametrize("line", EARLY_ERRORS)
def test_an_error_is_one_line_before_jax_is_imported(line, without_jax):
    results, folder = without_jax
    code, out, err = results[line]
    message = EARLY_ERRORS[line].replace("DIR", folder)
    if "give --model" in message:
        message = EARLY_ERRORS[line]
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}") and err.count("\n") == 1


@pytest.mark.parametrize("line", ERRORS)
def test_an_error_of_a_configuration_is_one_line(line, tmp_path):
    code, out, err = run(line.replace("DIR", str(tmp_path)).split())
    assert (code, out) == (2, "")
    message = ERRORS[line].replace("DIR", str(tmp_path))
    assert err.startswith(f"error: {message}") and err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_every_command_has_an_early_error():
    known = {line.split(" ")[0] for line in (*EARLY_ERRORS, *ERRORS)}
    assert {*COMMANDS, "bert_jax.main"} <= known


@pytest.mark.parametrize("name", ["bert_jax.main", *COMMANDS])
def test_help_has_an_example_and_the_flags(name):
    code, out, err = run([name, "--help"])
    assert (code, err) == (0, "")
    command = "python -m bert_jax.main" if name == "bert_jax.main" else f"bert_jax {name}"
    assert len(re.findall(f"{command}\\b", out)) > (name != "convert")
    if name in ("bert_jax.main", *WITH_CONFIGURATION):
        assert "--workdir" in out and "configs/base.py" in out and "--config.FIELD" in out


def test_help_lists_the_commands_which_are_the_modules():
    code, out, err = run(["--help"])
    assert (code, err) == (0, "")
    for name, description in COMMANDS.items():
        assert f"\n  {name:<13}  {description}\n" in out
    modules = {path.stem for path in (REPOSITORY / "bert_jax" / "tools" / "cli").glob("*.py")}
    assert modules - {"__init__", "command_line"} == set(COMMANDS)


def test_errors_end_a_process_with_2():
    done = start("-m", "bert_jax.main", "--stepz=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Unknown flag --stepz") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config.task.name=cola2"], "config.task.name='cola2'. Available: pretraining, causal"),
        (["--config.task.name=tagging"], "such as configs/classification.py"),
        (["--config.optimizer.name=sgd"], "Unknown optimizer 'sgd'. Available: bert_adam, adamw, "),
        (["--config.data.source=books"], "Unknown data.source='books'. Available: installed_docs"),
        (["--config.mesh.data=3"], "The mesh data=3 x fsdp=1 x tensor=1 does not use the 8 devic"),
        (["--mode=evaluate"], "has no checkpoint yet: train first, with --mode=train."),
        (["--num_processes=2"], "--coordinator, --num_processes and --process_id go together"),
        (["--workdir=/dev/null/run"], "/dev/null/run: Not a directory\n"),
    ],
)
def test_errors_of_devices_and_data_are_one_line_too(flags, message, tmp_path):
    code, out, err = run(["bert_jax.main", TINY, f"--workdir={tmp_path}", *flags])
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_fine_tuning_has_nothing_to_prepare(tmp_path):
    """Launchers prepare first, whatever is trained."""
    code, out, err = run(["prepare", "--config=configs/ner.py", f"--workdir={tmp_path}"])
    assert (code, err) == (0, "")
    assert "tagging: its files are read when training starts" in out
    assert not list(tmp_path.iterdir())
