"""What the commands have in common: typed --config overrides, and errors that are one line.

A command exits with 2 for what the user can mend (a flag, a setting, a file), after one line on
standard error that says how; anything else is a defect of the program and shows its traceback.
"""

import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax import config as config_lib

FLAGS = flags.FLAGS
_PACKAGE = str(pathlib.Path(__file__).parent)


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a command's `main(argv)` and ends the process with its exit code."""
    try:
        main(sys.argv)
    except (ValueError, flags.Error) as error:
        if isinstance(error, ValueError) and not _is_ours(error):
            raise
        _fail(str(error))
    except FileNotFoundError as error:
        _fail(f"{error.filename}: no such file.")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> None:
    print("error:", " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def _is_ours(error: ValueError) -> bool:
    """Whether this package raised the error, rather than a library that it misused."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(_PACKAGE)


def parse(argv: Sequence[str], *, workdir_is_enough: bool = False) -> ConfigDict:
    """`parse_with_words` for a command that takes flags only."""
    config, words = parse_with_words(argv, workdir_is_enough=workdir_is_enough)
    for word in words:
        hint = f" Did you mean --{word}?" if word.startswith("config.") else ""
        raise ValueError(f"{word!r} is no flag: flags begin with two dashes.{hint}")
    return config


def parse_with_words(
    argv: Sequence[str], *, workdir_is_enough: bool = True
) -> tuple[ConfigDict, list[str]]:
    """Parses all flags; returns the checked configuration and the words that are no flags.

    Args:
      argv: the command line, program name first.
      workdir_is_enough: take the configuration from --workdir when there is no --config.

    Raises:
      ValueError: for anything that is not right on the command line.
    """
    if any(word in ("--help", "-h", "-help", "--helpfull") for word in argv):
        config_flags.DEFINE_config_file("config", None, "Configuration file, e.g. configs/base.py.")
        FLAGS(argv)  # prints the help and exits
    sys.path.append(str(pathlib.Path(_PACKAGE).parent))  # a configuration may build on configs.base
    if flag_value(argv, "config"):
        config_flags.DEFINE_config_file("config", None, "Configuration file, e.g. configs/base.py.")
    elif workdir_is_enough and (workdir := flag_value(argv, "workdir")):
        config_flags.DEFINE_config_dict("config", config_lib.load(workdir).lock())
    else:
        raise ValueError("--config is missing: give a file, for example --config=configs/base.py.")
    try:
        left_over = FLAGS(argv)[1:]
        config = FLAGS.config
        config_lib.check(config)
    except flags.IllegalFlagValueError as error:
        raise ValueError(_wrong_type(error)) from error
    except (AttributeError, KeyError) as error:  # an unknown field, with a suggestion
        text = str(error.args[0]).strip("'").replace("\\n", " ").replace("\\'", "'")
        raise ValueError(f"Unknown configuration field {text}") from error
    except (OSError, SyntaxError, ImportError, TypeError) as error:
        raise ValueError(f"The configuration cannot be used: {error}") from error
    _check_groups(argv, config)
    return config, left_over


def flag_value(argv: Sequence[str], name: str) -> str:
    """The value of a flag on a command line that is not parsed yet; empty if it is not there."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word.startswith("-") and word.lstrip("-").split("=")[0] == name:
            return word.split("=", 1)[1] if "=" in word else following
    return ""


def _is_override(word: str) -> bool:
    return word.startswith(("-config.", "--config."))


def _wrong_type(error: flags.IllegalFlagValueError) -> str:
    """Names the type of the field, which absl does not."""
    text = str(error)
    name = text.removeprefix("flag ").split("=")[0]
    if not _is_override(name):
        return text
    default = config_lib.value_of(FLAGS.config, name.lstrip("-").removeprefix("config."))
    return f"{text} -- {name} takes a value of type {type(default).__name__}, such as {default!r}."


def _check_groups(argv: Sequence[str], config: ConfigDict) -> None:
    """A group replaced as a whole would silently lose the fields that are not named."""
    for word in argv:
        name, has_value, _ = word.lstrip("-").partition("=")
        if not (has_value and _is_override(word)):
            continue
        if isinstance(config_lib.value_of(config, name.removeprefix("config.")), ConfigDict | dict):
            raise ValueError(
                f"--{name} is a group of fields: set them one by one, for example"
                f" --{name}.FIELD=VALUE."
            )
