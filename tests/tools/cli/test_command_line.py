"""Flags, overrides and configurations on the command line, and errors of one line."""

import argparse
import logging
import pathlib
import re

import pytest

from bert_jax.config import store
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.tools.cli import command_line
from bert_jax.tools.cli.command_line import CONFIG, Flag, read_config
from bert_jax.tools.listeners import standard_error

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
TINY = f"--config={REPOSITORY}/configs/tiny.py"
FLAGS = (
    Flag("name", "", "A name."),
    Flag("kind", "a", "A kind.", choices=("a", "b")),
    Flag("count", 1, "A number.", minimum=0),
    Flag("some_count", 1, "A number."),
    Flag("rate", 0.5, "100 % is 1."),
    Flag("fast", False, "Fast."),
    Flag("check", True, "Without checks."),
    Flag("choice", None, "Either."),
    Flag("folder", [], "Some folders."),
    Flag("TEXT", [], "texts"),
)
DEFAULTS = {flag.attribute: flag.default for flag in FLAGS}


def parse_flags(*words: str) -> argparse.Namespace:
    return command_line.parse("bert_jax test", "What it does.\n\n    an example", FLAGS, words)


def parse(*words: str, run_is_enough: bool = False):
    """Returns the configuration of a command line."""
    flags = (Flag("workdir", "", "Folder of the run."), *CONFIG)
    return read_config(command_line.parse("bert_jax test", "", flags, words), run_is_enough)


def test_warnings_of_the_package_are_lines_on_standard_error(capsys):
    logger = logging.getLogger("bert_jax")
    try:
        standard_error.set_up()
        logging.getLogger("bert_jax.training").warning("%d of 5 steps", 3)
    finally:
        logger.removeHandler(logger.handlers[-1])
        logger.propagate = True
    assert capsys.readouterr() == ("", "warning    3 of 5 steps\n")


# ------------------------------------------------------------------ flags


@pytest.mark.parametrize(
    "words, changes",
    [
        ([], {}),
        (["--some-count=3", "--some-count", "4"], {"some_count": 4}),
        (["--name=x y", "--kind", "b", "--count=3"], {"name": "x y", "kind": "b", "count": 3}),
        (["--name=a=b", "--name", "c"], {"name": "c"}),
        (["one", "--count=2", "two"], {"count": 2, "text": ["one", "two"]}),
        (["--fast", "--nocheck", "--nochoice"], {"fast": True, "check": False, "choice": False}),
        (["--choice", "--rate=2"], {"choice": True, "rate": 2.0}),
        (["--folder=a", "--folder", "b"], {"folder": ["a", "b"]}),
        (["a", "--", "--count"], {"text": ["a", "--count"]}),
    ],
)
def test_the_forms_of_a_flag(words, changes):
    found = vars(parse_flags(*words))
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS | changes


@pytest.mark.parametrize(
    "words, message",
    [
        (["--kind=c"], "argument --kind: invalid choice: 'c' (choose from "),
        (["--count=1.5"], "argument --count: invalid int value: '1.5' (see --help)."),
        (["--count=-1"], "--count=-1 must be at least 0."),
        (["--nam=x"], "Unknown flag --nam: did you mean --name?"),
        (["--zzz"], "Unknown flag --zzz: see --help."),
        (["--name"], "argument --name: expected one argument (see --help)."),
        (["--name=hdfs://cluster/run"], "--name=hdfs://cluster/run: hdfs:// is not read or"),
    ],
)
def test_an_invalid_flag_is_named(words, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        parse_flags(*words)


def test_help_has_the_example_and_every_flag(capsys):
    with pytest.raises(SystemExit, match="^0$"):
        parse_flags("--help")
    said = capsys.readouterr().out
    assert "usage: bert_jax test" in said and "    an example\n" in said
    assert "100 % is 1. (default: 0.5)" in said and "--nocheck" in said


def test_addresses_become_local_paths_except_in_the_configuration(monkeypatch):
    monkeypatch.setattr(buckets, "local", lambda path: path.replace("gs://", "/copies/"))
    words = [TINY, "--config.data.vocab=gs://bucket/vocab.txt", "--name=gs://bucket/a"]
    words += ["--folder", "gs://b/1", "--folder=2", "gs://a text", "--", "--to=gs://bucket"]
    flags = command_line.parse("bert_jax test", "", (*FLAGS, *CONFIG), words)
    assert read_config(flags).data.vocab == "gs://bucket/vocab.txt"
    assert (flags.name, flags.folder) == ("/copies/bucket/a", ["/copies/b/1", "2"])
    assert flags.text == ["gs://a text", "--to=gs://bucket"]


# ------------------------------------------------------------------ configurations


def test_overrides_take_the_type_of_their_field():
    values = {
        "optimizer.learning_rate": ("2", 2.0),
        "model.remat": ("true", True),
        "phases": ("((64, 0.5), (128, 0.5, 16))", ((64, 0.5), (128, 0.5, 16))),
        "eval.every": ("7", "7"),
    }
    words = [f"--config.{name}={text}" for name, (text, _) in values.items()]
    config = parse(TINY, *words, "--config.steps", "7")
    assert config.steps == 7
    for name, (_, value) in values.items():
        assert config[name] == value and type(config[name]) is type(value)


def test_flags_have_any_order_and_the_last_one_counts(tmp_path):
    first = [*TINY.split("="), "--config.steps=5", f"--workdir={tmp_path}"]
    again = [f"--workdir={tmp_path}", "--config.steps=4", "--config=x.py", "--config.steps=5", TINY]
    config = parse(*first)
    assert (config.steps, config.model.num_layers) == (5, 2)
    assert parse(*again).to_dict() == config.to_dict()


def test_a_run_brings_its_own_configuration(tmp_path):
    """Its preset is not applied again unless it is asked for."""
    config = parse(TINY, "--config.preset=roberta", "--config.optimizer.beta2=0.9")
    store.save(config, str(tmp_path))
    again = parse(f"--workdir={tmp_path}", "--config.seed=3", run_is_enough=True)
    assert (again.preset, again.optimizer.beta2, again.seed) == ("roberta", 0.9, 3)
    anew = parse(f"--workdir={tmp_path}", "--config.preset=roberta", run_is_enough=True)
    assert anew.optimizer.beta2 == 0.98


INVALID = {
    "--config.model.hiden_size=3": "configuration field 'hiden_size': did you mean 'hidden_size'",
    "--config.zzz=3": "no configuration field 'zzz': docs/configuration.md has them all.",
    "--config.phases[0]=2": "no configuration field 'phases[0]': did you mean 'phases'?",
    "--config.steps=1.5": "takes a value of type int, such as ",
    "--config.model.remat=maybe": "a value of type bool, such as ",
    "--config.phases=((128,1.0)": "takes a value of type tuple, such as ((64, ",
    "--config.model={}": "--config.model is a group of fields: set them one by one, for example",
    "--config.steps": "--config.steps lacks its value: write --config.steps=VALUE.",
    "--text_column=x": "Unknown flag --text_column: did you mean --config.task.text_a=x?",
    "--epochs=3": "Unknown flag --epochs: did you mean --config.epochs=3?",
    "--max_steps 5": "Unknown flag --max_steps: did you mean --config.steps=VALUE?",
    "config.steps=4": "'config.steps=4' is not a flag: flags begin with two dashes. Did you mean",
    "more": "'more' is not a flag: flags begin with two dashes.",
    "--config.optimizer.learning_rate=1e999": "learning_rate=inf is not a finite number.",
    "--config.data.source=text:abfss://bucket/*.txt": "is not read or written: mount the bucket",
}


@pytest.mark.parametrize("line", INVALID)
def test_an_invalid_command_line_is_named(line):
    with pytest.raises(UserError, match=re.escape(INVALID[line])):
        parse(TINY, *line.split())


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "there is no such file"),
        ("x = (", r"cannot be used: '\(' was never closed"),
        ("import nowhere", "cannot be used: No module named 'nowhere'"),
        ("x = 1", "has no attribute 'get_config'"),
    ],
)
def test_a_configuration_file_that_cannot_be_used(content, message, tmp_path):
    path = tmp_path / "config.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        parse(f"--config={path}")


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "holds no run: there is no config.json in it"),
        ("{", "config.json is corrupt .*: train again with --config"),
        ("[]", "config.json is corrupt .*: train again with --config"),
        ('{"model_type": "bert"}', "is not a workdir: .*convert from_hf"),
    ],
)
def test_a_folder_without_a_usable_run(content, message, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=message):
        parse(f"--workdir={tmp_path}", run_is_enough=True)
    if "model_type" in (content or ""):  # a new run does not overwrite another program's files
        with pytest.raises(UserError, match=message):
            parse(TINY, f"--workdir={tmp_path}")


def test_configurations_are_looked_up_here_and_then_in_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("--config=configs/tiny.py").model.num_layers == 2
    assert parse("--config=configs/glue.py:rte").task.published == "rte"
    assert parse("--config=glue:rte").task.published == "rte"
    (tmp_path / "configs").mkdir()
    mine = "from configs import base\n\ndef get_config():\n    return base.get_config()\n"
    (tmp_path / "configs" / "tiny.py").write_text(mine)
    assert parse("--config=configs/tiny.py").model.num_layers == 12
    with pytest.raises(UserError) as error:
        parse("--config=configs/mine.py")
    assert str(error.value) == (
        "--config=configs/mine.py: there is no such file, neither in the current directory nor in"
        f" the installed package ({REPOSITORY / 'configs'})."
    )
    with pytest.raises(UserError, match=r"--config=tiny.py: there is no such file\.$"):
        parse("--config=tiny.py")


# ------------------------------------------------------------------ processes


@pytest.mark.parametrize(
    "error, code, message",
    [
        (UserError("x=1\nis wrong."), 2, "error: x=1 is wrong.\n"),
        (IsADirectoryError(21, "Is a directory", "/tmp"), 2, "error: /tmp: Is a directory\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_the_user_can_correct_is_one_line(error, code, message, capsys):
    def main(words):
        raise error

    with pytest.raises(SystemExit, match=f"^{code}$"):
        command_line.run(main)
    assert capsys.readouterr().err == message
    error = ValueError("not ours")  # keeps its traceback
    with pytest.raises(ValueError, match="not ours"):
        command_line.run(main)
