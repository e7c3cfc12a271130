"""Overrides are typed, and every mistake is answered by one sentence that says what is right."""

import pathlib
import sys

import pytest
from absl import flags

from bert_jax.commands import command_line
from bert_jax.config import settings as config_lib

# ml_collections 1.1 loads the configuration file in a way that Python 3.12 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module.. method:DeprecationWarning")
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TINY = f"--config={REPOSITORY}/configs/tiny.py"


@pytest.fixture
def parse(monkeypatch):
    """Returns a function that parses a command line in flags of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "config_config", raising=False)

    def parse(*words: str, workdir_is_enough: bool = False):
        values = flags.FlagValues()
        flags.DEFINE_string("workdir", "", "Folder of the run.", flag_values=values)
        monkeypatch.setattr(command_line, "FLAGS", values)
        for define in ("DEFINE_config_file", "DEFINE_config_dict"):
            original = getattr(command_line.config_flags, define)
            original = getattr(original, "in_flags_of_their_own", original)

            def in_own(*args, original=original, **options):
                return original(*args, flag_values=values, **options)

            in_own.in_flags_of_their_own = original
            monkeypatch.setattr(command_line.config_flags, define, in_own)
        return command_line.parse(["main", *words], workdir_is_enough=workdir_is_enough)

    return parse


def test_overrides_take_the_type_of_their_field(parse):
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


def test_a_run_brings_its_own_configuration(parse, tmp_path):
    config_lib.save(parse(TINY, "--config.steps=7"), str(tmp_path))
    again = parse(f"--workdir={tmp_path}", "--config.seed=3", workdir_is_enough=True)
    assert (again.steps, again.seed) == (7, 3)


def test_a_preset_changes_the_file_and_what_is_given_wins(parse):
    words = ["--config.preset=roberta", "--config.model.activation=gelu_tanh"]
    for order in (words, words[::-1]):
        config = parse(TINY, *order)
        assert config.model.activation == "gelu_tanh"
        assert config.model.layer_norm_epsilon == 1e-5
        assert config.optimizer.no_decay == ()
        assert config.model.num_layers == 2
    for given in (["--config.optimizer.beta2", "0.9"], ["-config.optimizer.beta2=0.9"]):
        assert parse(TINY, "--config.preset=roberta", *given).optimizer.beta2 == 0.9


def test_a_flag_that_says_no_is_given_too(parse):
    config = parse(TINY, "--config.preset=google_2018", "--noconfig.model.next_sentence")
    assert config.model.next_sentence is False
    assert config.data.mode == "static"


def test_the_preset_of_a_run_is_not_applied_again_unless_asked_for(parse, tmp_path):
    config = parse(TINY, "--config.preset=roberta", "--config.optimizer.beta2=0.9")
    config_lib.save(config, str(tmp_path))
    run = f"--workdir={tmp_path}"
    again = parse(run, workdir_is_enough=True)
    assert (again.preset, again.optimizer.beta2) == ("roberta", 0.9)
    anew = parse(run, "--config.preset=roberta", workdir_is_enough=True)
    assert anew.optimizer.beta2 == 0.98


MISTAKES = {
    "unknown preset": (
        ["--config.preset=bart"],
        "Unknown preset 'bart'. Available: paper, google_2018, google_2019, hf, roberta.",
    ),
    "a preset and what it excludes": (
        ["--config.preset=google_2019", "--config.data.mask_rounding=bernoulli"],
        "data.mask_rounding=bernoulli needs data.mode=dynamic",
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
        "There is no configuration field 'zzz': configs/base.py has all that there are.",
    ),
    "text for a number": (["--config.steps=abc"], "takes a value of type int, such as "),
    "fraction for a count": (["--config.steps=1.5"], "takes a value of type int, such as "),
    "text for a fraction": (
        ["--config.optimizer.learning_rate=fast"],
        "takes a value of type float, such as ",
    ),
    "no dashes": (
        ["config.steps=4"],
        "'config.steps=4' is no flag: flags begin with two dashes. Did you mean --config.steps=4?",
    ),
    "another word": (["more"], "'more' is no flag: flags begin with two dashes."),
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
    "no duration": (["--config.eval.every=often"], "config.eval.every='often' is no duration"),
    "no choice": (
        ["--config.nonfinite=ignore"],
        "config.nonfinite='ignore' is none of abort, skip.",
    ),
    "no phases": (["--config.phases=128"], "config.phases=(128,) is not a tuple of"),
    "an item of a tuple": (["--config.phases[0]=2"], "The configuration cannot be used: 0 is not"),
}


@pytest.mark.parametrize("words, message", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named(words, message, parse):
    with pytest.raises(ValueError) as error:
        parse(TINY, *words)
    assert message in str(error.value)


def test_a_flag_that_is_not_there_is_named(parse):
    with pytest.raises(flags.Error, match="Unknown command line flag 'stepz'"):
        parse(TINY, "--stepz=3")


def test_an_override_before_its_file_is_refused(parse):
    with pytest.raises(flags.Error, match="before a value for --config was specified"):
        parse("--config.steps=3", TINY)


def test_a_configuration_is_asked_for(parse, tmp_path):
    with pytest.raises(
        ValueError, match=r"--config is missing: give a file, for example \S+\.py\."
    ):
        parse("--config.steps=3")
    with pytest.raises(ValueError, match=r"--config is missing.*, or --workdir=DIR of a run\."):
        parse(workdir_is_enough=True)
    with pytest.raises(ValueError, match="holds no run: there is no config.json in it"):
        parse(f"--workdir={tmp_path}", workdir_is_enough=True)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "there is no such file"),
        ("x = (", r"cannot be used: '\(' was never closed"),
        ("import nowhere", "cannot be used: No module named 'nowhere'"),
        ("x = 1", "cannot be used: module config_config has no attribute get_config"),
    ],
)
def test_a_configuration_file_that_is_none(content, message, parse, tmp_path):
    path = tmp_path / "config.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        parse(f"--config={path}")


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_damaged_configuration_of_a_run(content, parse, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="config.json is damaged .*: give .* with --config"):
        parse(f"--workdir={tmp_path}", workdir_is_enough=True)


@pytest.mark.parametrize("words", [[], [TINY]])
def test_the_folder_of_another_program_is_no_workdir(words, parse, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="is no workdir: .*convert from_hf"):
        parse(*words, f"--workdir={tmp_path}", workdir_is_enough=True)


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
        (flags.Error("two\nlines"), "error: two lines\n"),
    ],
)
def test_what_the_user_can_mend_is_one_line(error, message, capsys):
    with pytest.raises(SystemExit) as end:
        command_line.run(raises(error))
    assert end.value.code == 2
    found = capsys.readouterr().err
    assert found.startswith(message)
    assert found.count("\n") == 1


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ValueError, match="not ours"):
        command_line.run(raises(ValueError("not ours")))


def test_an_interruption_has_its_usual_exit_code():
    with pytest.raises(SystemExit) as end:
        command_line.run(raises(KeyboardInterrupt()))
    assert end.value.code == 130
