"""The one command in processes of its own: exit codes, one line, no traceback, no waiting."""

import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TINY = "--config=configs/tiny.py"


def start(*flags: str, module: str = "bert_jax.main", **environment: str):
    """Runs a command; the limit is for one that hangs."""
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
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
            "is of several seeds: name the folder of one",
        ),
        (["--workdir=DIR", "--mode=predict", TINY], "needs --input=FILE and --output=FILE"),
    ],
)
def test_mistakes_are_answered_by_one_line(flags, message, tmp_path):
    done = start(*(flag.replace("DIR", str(tmp_path)) for flag in flags))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_fine_tuning_has_nothing_to_prepare(tmp_path):
    """Launchers prepare first, whatever is trained."""
    flags = ("--config=configs/ner.py", f"--workdir={tmp_path}")
    done = start(*flags, module="bert_jax.commands.prepare")
    assert done.returncode == 0, done.stderr
    assert "tagging: its files are read when training starts" in done.stdout
    assert not list(tmp_path.iterdir())


def test_jax_is_not_imported_to_say_no(tmp_path):
    """So that the answer comes at once: with a jax that cannot be imported it is the same."""
    (tmp_path / "jax.py").write_text("raise ImportError('jax was imported')")
    done = start(TINY, f"--workdir={tmp_path}", "--config.stepz=1", PYTHONPATH=str(tmp_path))
    assert "no configuration field 'stepz'" in done.stderr


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--config.task=cola2"], "config.task='cola2' is none of pretraining, classification"),
        (["--config.task=tagging"], "take one such as configs/classification.py"),
        (["--config.optimizer.name=sgd"], "Unknown optimizer 'sgd'. Available: bert_adam, adamw."),
        (["--config.data.source=books"], "Unknown data.source='books'. Available: installed_docs"),
        (
            ["--config.mesh.data=3"],
            "The mesh data=3 x fsdp=1 x tensor=1 does not use the 8 devices",
        ),
        (["--mode=evaluate"], "has no checkpoint yet: train first, with --mode=train."),
        (["--mode=predict", "--input=setup.py", "--output=out"], "has no checkpoint yet"),
        (["--num_processes=2"], "--coordinator, --num_processes and --process_id go together"),
    ],
)
def test_what_only_the_devices_or_the_data_can_tell_is_one_line_too(flags, message, tmp_path):
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
    "module", ["bert_jax.main", "bert_jax.commands.prepare", "bert_jax.commands.fill_mask"]
)
def test_help_shows_the_flags_and_where_the_fields_stand(module):
    done = start("--help", module=module)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {module}" in done.stdout
    assert "--workdir" in done.stdout
    assert "configs/base.py" in done.stdout


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
    done = start(*flags, module="bert_jax.commands.fill_mask")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
