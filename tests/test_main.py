"""The commands in processes of their own: exit codes, errors of one line, no traceback."""

import os
import pathlib
import subprocess
import sys

import pytest

from bert_jax.tools.cli import COMMANDS

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TINY = "--config=configs/tiny.py"
WITH_CONFIGURATION = "train evaluate predict prepare features score fill_mask".split()


def start(*flags: str, command: str = "bert_jax.main", **environment: str):
    """Runs a command; the timeout is for one that hangs."""
    return subprocess.run(
        [sys.executable, "-m", *command.split(), *flags],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        ([TINY], "--workdir is missing"),
        ([TINY, "--workdir=DIR", "--config.stepz=1"], "no configuration field 'stepz'"),
        ([TINY, "--workdir=DIR", "--mode=tain"], "should be one of <train|evaluate|predict>"),
        (["--workdir=DIR", "--mode=evaluate"], "holds no run"),
        (
            ["--workdir=DIR", "--mode=evaluate", "--config=configs/ner.py", "--config.seeds=2"],
            "holds the runs of several seeds: name the folder of one",
        ),
        (["--workdir=DIR", "--mode=predict", TINY], "needs --input=FILE and --output=FILE"),
    ],
)
def test_invalid_flags_are_reported_in_one_line(flags, message, tmp_path):
    done = start(*(flag.replace("DIR", str(tmp_path)) for flag in flags))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_fine_tuning_has_nothing_to_prepare(tmp_path):
    """Launchers prepare first, whatever is trained."""
    flags = ("--config=configs/ner.py", f"--workdir={tmp_path}")
    done = start(*flags, command="bert_jax prepare")
    assert done.returncode == 0, done.stderr
    assert "tagging: its files are read when training starts" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["bert_jax.main", *(f"bert_jax {n}" for n in COMMANDS)])
def test_an_invalid_flag_is_reported_without_importing_jax(command, tmp_path):
    """The report is immediate; it is the same with a jax that cannot be imported."""
    (tmp_path / "jax.py").write_text("raise ImportError('jax was imported')")
    flags = [TINY, f"--workdir={tmp_path}", "--config.stepz=1"]
    message = "no configuration field 'stepz'"
    if command.split()[-1] not in ("bert_jax.main", *WITH_CONFIGURATION):
        name = {"convert": "from_hf", "benchmark": "step"}.get(command.split()[-1])
        flags, message = [*([name] if name else []), "--stepz=1"], "error: "
    done = start(*flags, command=command, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr and "jax was imported" not in done.stderr


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config.task=cola2"], "config.task='cola2'. Available: pretraining, causal_lm"),
        (["--config.task=tagging"], "such as configs/classification.py"),
        (["--config.optimizer.name=sgd"], "Unknown optimizer 'sgd'. Available: bert_adam, adamw, "),
        (["--config.data.source=books"], "Unknown data.source='books'. Available: installed_docs"),
        (
            ["--config.mesh.data=3"],
            "The mesh data=3 x fsdp=1 x tensor=1 does not use the 8 devices",
        ),
        (["--mode=evaluate"], "has no checkpoint yet: train first, with --mode=train."),
        (["--mode=predict", "--input=setup.py", "--output=out"], ": train first."),
        (["--num_processes=2"], "--coordinator, --num_processes and --process_id go together"),
    ],
)
def test_errors_of_devices_and_data_are_one_line_too(flags, message, tmp_path):
    done = start(TINY, f"--workdir={tmp_path}", *flags)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_a_folder_that_cannot_be_made_is_named():
    done = start(TINY, "--workdir=/dev/null/run")
    assert (done.returncode, done.stderr) == (2, "error: /dev/null/run: Not a directory\n")


@pytest.mark.parametrize(
    "command", ["bert_jax.main", *(f"bert_jax {name}" for name in WITH_CONFIGURATION)]
)
def test_help_shows_the_flags_and_where_the_fields_stand(command):
    done = start("--help", command=command)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"    python -m {command}" in done.stdout
    assert "--workdir" in done.stdout
    assert "configs/base.py" in done.stdout and "--config.FIELD" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    done = start("--help", command=f"bert_jax {name}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m bert_jax {name}" in done.stdout


def test_help_lists_the_commands():
    done = start("--help", command="bert_jax")
    assert (done.returncode, done.stderr) == (0, "")
    for name, description in COMMANDS.items():
        assert f"\n  {name:<13}  {description}\n" in done.stdout


@pytest.mark.parametrize(
    "name, message",
    [
        ("trian", "Unknown command 'trian'. Did you mean train? Available: train, evaluate,"),
        ("", "The command is missing. Available: train, evaluate, predict, sweep, report,"),
    ],
)
def test_an_unknown_command_is_reported_with_the_closest_one(name, message):
    done = start(command=f"bert_jax {name}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1


def test_every_module_of_a_command_is_listed():
    folder = REPOSITORY / "bert_jax" / "tools" / "cli"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(COMMANDS)


def test_the_front_door_has_the_same_modes(tmp_path):
    for flags in ([TINY], ["--workdir=x", "--config.seed=1"]):
        same = [start(*flags, command=command) for command in ("bert_jax train", "bert_jax.main")]
        assert same[0].stderr == same[1].stderr and same[0].returncode == 2
    for mode in ("evaluate", "predict"):
        flags = (f"--workdir={tmp_path}",)
        old, new = start(f"--mode={mode}", *flags), start(*flags, command=f"bert_jax {mode}")
        assert old.stderr == new.stderr and "holds no run" in new.stderr


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            [],
            "--config is missing: give a file, for example --config=configs/base.py, or --workdir",
        ),
        ([TINY, "The [MASK]."], "--workdir is missing: the folder of a trained run."),
        ([TINY, "--workdir=x"], "Give a text with a mask"),
        ([TINY, "--workdir=x", "No mask."], "There is no [MASK] in 'No mask.'."),
    ],
)
def test_fill_mask_says_what_it_needs(flags, message):
    done = start(*flags, command="bert_jax fill_mask")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
