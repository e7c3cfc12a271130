"""Overrides are typed, and every error is one line with the value and what is allowed."""

import pathlib

import pytest

from bert_jax.config import store
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import command_line, configuration

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
TINY = f"--config={REPOSITORY}/configs/tiny.py"


def parse(*words: str, workdir_is_enough: bool = False):
    """Returns the configuration of a command line."""
    parser = command_line.Parser("bert_jax test", "")
    parser.flag("workdir", "", "Folder of the run.")
    argv = ["test", *words]
    return configuration.parse_config(parser, argv, workdir_is_enough=workdir_is_enough)[0]


def test_overrides_take_the_type_of_their_field():
    config = parse(
        TINY,
        "--config.steps=7",
        "--config.optimizer.learning_rate=2",
        "--config.model.remat",
        "--config.phases=((64, 0.5), (128, 0.5, 16))",
        "--config.eval.every=7",
        "--config.data.lowercase=false",
    )
    assert config.steps == 7
    assert config.optimizer.learning_rate == 2.0
    assert isinstance(config.optimizer.learning_rate, float)
    assert config.model.remat is True
    assert config.phases == ((64, 0.5), (128, 0.5, 16))
    assert config.eval.every == "7"
    assert config.data.lowercase is False


def test_a_run_brings_its_own_configuration(tmp_path):
    store.save(parse(TINY, "--config.steps=7"), str(tmp_path))
    again = parse(f"--workdir={tmp_path}", "--config.seed=3", workdir_is_enough=True)
    assert (again.steps, again.seed) == (7, 3)


def test_a_preset_changes_the_file_and_what_is_given_wins():
    words = ["--config.preset=roberta", "--config.model.activation=gelu_tanh"]
    for order in (words, words[::-1]):
        config = parse(TINY, *order)
        assert config.model.activation == "gelu_tanh"
        assert config.model.layer_norm_epsilon == 1e-5
        assert config.optimizer.no_decay == ()
        assert config.model.num_layers == 2
    for given in (["--config.optimizer.beta2", "0.9"], ["-config.optimizer.beta2=0.9"]):
        assert parse(TINY, "--config.preset=roberta", *given).optimizer.beta2 == 0.9


def test_a_flag_that_says_no_is_given_too():
    config = parse(TINY, "--config.preset=google_2018", "--noconfig.model.next_sentence")
    assert config.model.next_sentence is False
    assert config.data.mode == "static"


def test_the_preset_of_a_run_is_not_applied_again_unless_asked_for(tmp_path):
    config = parse(TINY, "--config.preset=roberta", "--config.optimizer.beta2=0.9")
    store.save(config, str(tmp_path))
    run = f"--workdir={tmp_path}"
    again = parse(run, workdir_is_enough=True)
    assert (again.preset, again.optimizer.beta2) == ("roberta", 0.9)
    anew = parse(run, "--config.preset=roberta", workdir_is_enough=True)
    assert anew.optimizer.beta2 == 0.98


INVALID = {
    "unknown preset": (
        ["--config.preset=bart"],
        "Unknown preset 'bart'. Available: paper, google_2018, google_2019, hf, roberta.",
    ),
    "a preset and what it excludes": (
        ["--config.preset=google_2019", "--config.data.mask_rounding=bernoulli"],
        "config.data.mask_rounding='bernoulli' needs config.data.mode='dynamic'",
    ),
    "no pairs to guess about": (
        ["--config.preset=hf", "--config.model.next_sentence=true"],
        "config.model.next_sentence=True needs config.data.segments='pairs'",
    ),
    "unknown field": (
        ["--config.model.hiden_size=3"],
        "There is no configuration field 'hiden_size': did you mean 'hidden_size'?",
    ),
    "unknown group": (
        ["--config.modell.hidden_size=3"],
        "There is no configuration field 'modell': did you mean 'model'?",
    ),
    "nothing like it": (
        ["--config.zzz=3"],
        "There is no configuration field 'zzz': docs/configuration.md has them all.",
    ),
    "text for a number": (["--config.steps=abc"], "takes a value of type int, such as "),
    "fraction for a count": (["--config.steps=1.5"], "takes a value of type int, such as "),
    "text for a fraction": (
        ["--config.optimizer.learning_rate=fast"],
        "takes a value of type float, such as ",
    ),
    "no dashes": (
        ["config.steps=4"],
        "'config.steps=4' is not a flag: flags begin with two dashes. Did you mean --config.steps",
    ),
    "another word": (["more"], "'more' is not a flag: flags begin with two dashes."),
    "negative": (["--config.steps=-4"], "config.steps=-4 must be above 0."),
    "zero": (["--config.global_batch_size=0"], "config.global_batch_size=0 must be above 0."),
    "NaN": (
        ["--config.optimizer.learning_rate=nan"],
        "config.optimizer.learning_rate=nan is not a finite number.",
    ),
    "infinite": (
        ["--config.optimizer.learning_rate=1e999"],
        "config.optimizer.learning_rate=inf is not a finite number.",
    ),
    "an emptied group": (
        ["--config.model={}"],
        "--config.model is a group of fields: set them one by one, for example"
        " --config.model.FIELD=VALUE.",
    ),
    "a group in two words": (["--config.mesh", "{}"], "--config.mesh is a group of fields"),
    "a number for a group": (["--config.model=3"], "--config.model is a group of fields"),
    "no duration": (["--config.eval.every=often"], "config.eval.every='often' is not a duration"),
    "no choice": (
        ["--config.nonfinite=ignore"],
        "config.nonfinite='ignore' must be one of abort, skip.",
    ),
    "no phases": (["--config.phases=128"], "config.phases=(128,) is not a tuple of"),
    "an item of a tuple": (
        ["--config.phases[0]=2"],
        "There is no configuration field 'phases[0]': did you mean 'phases'?",
    ),
    "a field of another group": (
        ["--config.learning_rate=1"],
        "There is no configuration field 'learning_rate': did you mean 'optimizer.learning_rate'?",
    ),
    "no value": (["--config.steps"], "--config.steps lacks its value: write --config.steps=VALUE."),
    "no for a number": (["--noconfig.steps"], "--noconfig.steps is for a field that is True or"),
    "neither true nor false": (["--config.model.remat=maybe"], "a value of type bool, such as "),
    "no tuple": (["--config.phases=((128, 1.0)"], "takes a value of type tuple, such as ((64, "),
}


@pytest.mark.parametrize("words, message", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_command_line_is_named(words, message):
    with pytest.raises(UserError) as error:
        parse(TINY, *words)
    assert message in str(error.value)


def test_a_flag_that_is_not_there_is_named():
    with pytest.raises(UserError, match="Unknown flag --stepz: see --help"):
        parse(TINY, "--stepz=3")
    with pytest.raises(UserError, match="Unknown flag --workdr: did you mean --workdir?"):
        parse(TINY, "--workdr=3")


@pytest.mark.parametrize("file", [[TINY], TINY.split("="), [TINY[1:]]])
def test_the_order_of_the_flags_does_not_matter(file, tmp_path):
    others = ["--config.steps=5", "--noconfig.data.lowercase", f"--workdir={tmp_path}"]
    first = parse(*file, *others)
    assert (first.steps, first.data.lowercase, first.model.num_layers) == (5, False, 2)
    assert parse(*others, *file).to_dict() == first.to_dict()
    assert parse(others[0], *file, *others[1:]).to_dict() == first.to_dict()


def test_of_a_repeated_flag_the_last_one_counts(tmp_path):
    config = parse("--config=configs/base.py", "--config.steps=5", TINY, "--config.steps=6")
    assert (config.steps, config.model.num_layers) == (6, 2)
    store.save(config, str(tmp_path))
    words = ("--workdir=nowhere", "--config.seed=1", f"--workdir={tmp_path}", "--config.seed=2")
    assert parse(*words, workdir_is_enough=True).seed == 2


def test_a_tuple_that_is_given_twice_is_refused():
    twice = ["--config.phases=((64, 1.0),)", "--config.phases=((32, 1.0),)"]
    with pytest.raises(UserError) as error:
        parse(TINY, *twice)
    assert str(error.value) == (
        "--config.phases is given more than once, but has one value, a tuple: give it once, for"
        " example --config.phases=((64, 1.0),)."
    )


def test_a_configuration_is_asked_for(tmp_path):
    with pytest.raises(
        ValueError, match=r"--config is missing: give a file, for example \S+\.py\."
    ):
        parse("--config.steps=3")
    with pytest.raises(UserError, match=r"--config is missing.*, or --workdir=DIR of a run\."):
        parse(workdir_is_enough=True)
    with pytest.raises(UserError, match="holds no run: there is no config.json in it"):
        parse(f"--workdir={tmp_path}", workdir_is_enough=True)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "there is no such file"),
        ("x = (", r"cannot be used: '\(' was never closed"),
        ("import nowhere", "cannot be used: No module named 'nowhere'"),
        ("x = 1", "has no attribute 'get_config'"),
    ],
)
def test_a_configuration_file_that_is_none(content, message, tmp_path):
    path = tmp_path / "config.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        parse(f"--config={path}")


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_corrupt_configuration_of_a_run(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="config.json is corrupt .*: give .* with --config"):
        parse(f"--workdir={tmp_path}", workdir_is_enough=True)


@pytest.mark.parametrize("words", [[], [TINY]])
def test_the_folder_of_another_program_is_no_workdir(words, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="is not a workdir: .*convert from_hf"):
        parse(*words, f"--workdir={tmp_path}", workdir_is_enough=True)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ner.py:foo", "Unknown set 'foo'. Available: conll2003, wnut17, wikigold."),
        ("squad.py:v3", "Unknown version 'v3'. Available: v1, v2."),
        ("glue.py:foo", "Unknown GLUE task 'foo'. Available: cola, sst2, mrpc, stsb, qqp, mnli,"),
        ("chinese.py:foo", "Unknown set 'foo'. Available: xnli, chnsenticorp, lcqmc, msra_ner,"),
        ("tagging.py:foo", "Unknown tags 'foo'. Available: entities, words."),
    ],
)
def test_an_argument_that_a_configuration_does_not_have(name, message):
    with pytest.raises(UserError) as error:
        parse(f"--config=configs/{name}", "--config.seed=1")
    assert str(error.value).startswith(f"--config=configs/{name}: {message}")
    assert "\n" not in str(error.value)


def test_configurations_are_looked_up_here_and_then_in_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("--config=configs/tiny.py").model.num_layers == 2
    assert parse("--config=configs/glue.py:rte").data.published == "rte"
    assert parse("--config=glue:rte").data.published == "rte"
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


def raises(error: BaseException):
    def main(argv):
        raise error

    return main


@pytest.mark.parametrize(
    "error, message",
    [
        (IsADirectoryError(21, "Is a directory", "/tmp"), "error: /tmp: Is a directory\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), "error: x: No such file"),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
    ],
)
def test_what_the_user_can_correct_is_one_line(error, message, capsys):
    with pytest.raises(SystemExit) as end:
        command_line.run(raises(error))
    assert end.value.code == 2
    found = capsys.readouterr().err
    assert found.startswith(message)
    assert found.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--workdir=hdfs://cluster/run"],
        ["--config.seed=1", "--workdir", "az://bucket/run"],
        ["--config.data.source=text:abfss://bucket/*.txt"],
    ],
)
def test_the_address_of_another_object_store_is_refused(words):
    with pytest.raises(UserError, match="is not read or written: mount the bucket as a folder"):
        parse(TINY, *words)


def test_addresses_become_local_paths_except_in_the_configuration(monkeypatch):
    monkeypatch.setattr(buckets, "local", lambda path: path.replace("gs://", "/copies/"))
    parser = command_line.Parser("bert_jax test", "")
    parser.flag("input", "", "A file.")
    parser.repeated("folder", "Some folders.", "DIR")
    parser.words("TEXT", "texts", "*")
    words = [TINY, "--config.data.vocab", "gs://bucket/vocab.txt", "--input=gs://bucket/a"]
    words += ["--folder", "gs://b/1", "--folder=2", "gs://a text", "--", "--to=gs://bucket"]
    config, flags = configuration.parse_config(parser, ["test", *words])
    assert config.data.vocab == "gs://bucket/vocab.txt"
    assert (flags.input, flags.folder) == ("/copies/bucket/a", ["/copies/b/1", "2"])
    assert flags.text == ["gs://a text", "--to=gs://bucket"]


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ValueError, match="not ours"):
        command_line.run(raises(ValueError("not ours")))


def test_an_interruption_has_its_usual_exit_code():
    with pytest.raises(SystemExit) as end:
        command_line.run(raises(KeyboardInterrupt()))
    assert end.value.code == 130


# ---------------------------------------------------------------------------- flags of a command


def parse_flags(*words: str):
    parser = command_line.Parser("bert_jax test", "What it does.\n\n    an example")
    parser.flag("name", "", "A name.")
    parser.flag("kind", "a", "A kind.", choices=("a", "b"))
    parser.flag("count", 1, "A number.", least=0)
    parser.flag("rate", 0.5, "100 % is 1.")
    parser.flag("word", None, "A word.")
    parser.switch("fast", "Fast.")
    parser.switch("check", "Without checks.", default=True)
    parser.switch("choice", "Either.", default=None)
    parser.words("TEXT", "texts", "*")
    return vars(parser.parse(["test", *words]))


DEFAULTS = {
    "name": "",
    "kind": "a",
    "count": 1,
    "rate": 0.5,
    "word": None,
    "fast": False,
    "check": True,
    "choice": None,
    "text": [],
}


@pytest.mark.parametrize(
    "words, changes",
    [
        ([], {}),
        (["--name=x y", "--kind", "b", "-count=3"], {"name": "x y", "kind": "b", "count": 3}),
        (["--name=a=b", "--name", "c"], {"name": "c"}),
        (["one", "--count=2", "two"], {"count": 2, "text": ["one", "two"]}),
        (["--fast", "--nocheck", "--nochoice"], {"fast": True, "check": False, "choice": False}),
        (
            ["--fast=true", "--check=false", "--choice"],
            {"fast": True, "check": False, "choice": True},
        ),
        (["--fast", "--nofast"], {}),
        (["--rate=2", "--word=mean"], {"rate": 2.0, "word": "mean"}),
        (["--", "--count"], {"text": ["--count"]}),
    ],
)
def test_the_forms_of_a_flag(words, changes):
    assert parse_flags(*words) == DEFAULTS | changes


@pytest.mark.parametrize(
    "words, message",
    [
        (["--kind=c"], "argument --kind: 'c' should be one of <a|b> (see --help)."),
        (["--count=1.5"], "argument --count: '1.5' is not an integer (see --help)."),
        (["--count=-1"], "argument --count: -1 must be at least 0 (see --help)."),
        (["--rate=fast"], "argument --rate: 'fast' is not a number (see --help)."),
        (["--nam=x"], "Unknown flag --nam: did you mean --name?"),
        (["--zzz"], "Unknown flag --zzz: see --help."),
        (["--name"], "argument --name: expected one argument (see --help)."),
    ],
)
def test_an_invalid_flag_is_named(words, message):
    with pytest.raises(UserError) as error:
        parse_flags(*words)
    assert str(error.value) == message


@pytest.mark.parametrize("word", command_line.HELP)
def test_help_has_the_example_and_every_flag(word, capsys):
    with pytest.raises(SystemExit) as end:
        parse_flags("--count=x", word)
    assert end.value.code == 0
    said = capsys.readouterr().out
    for part in (
        "usage: python -m bert_jax test",
        "    an example",
        "--name",
        "--nocheck",
        "100 %",
    ):
        assert part in said
