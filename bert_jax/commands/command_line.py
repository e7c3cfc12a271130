"""What the commands have in common: typed --config overrides, and errors that are one line.

A command exits with 2 for what the user can mend (a flag, a setting, a file), after one line on
standard error that says how; anything else is a defect of the program and shows its traceback.
"""

import logging
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from absl import logging as absl_logging
from ml_collections import ConfigDict, config_flags

from bert_jax.config import presets
from bert_jax.config import settings as config_lib
from bert_jax.formats import source

FLAGS = flags.FLAGS
_PACKAGE = str(pathlib.Path(__file__).parent)
_CONFIG_HELP = "Configuration file, for example configs/base.py, which describes every field."


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a command's `main(argv)` and ends the process with its exit code."""
    absl_logging.get_absl_logger().addFilter(_is_for_users)
    try:
        main(sys.argv)
    except (ValueError, flags.Error) as error:
        if isinstance(error, ValueError) and not _is_ours(error):
            raise
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))


def _is_for_users(record: logging.LogRecord) -> bool:
    """Our own warnings are; orbax's tell of what it was asked to do."""
    return record.levelno >= logging.ERROR or record.pathname.startswith(_PACKAGE)


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
    if {"--help", "-h", "-help", "--helpfull"} & set(argv):
        _print_help()
    sys.path.append(str(pathlib.Path(_PACKAGE).parent))  # a configuration may build on configs.base
    workdir = flag_value(argv, "workdir") if workdir_is_enough else ""
    if path := flag_value(argv, "config"):
        if not os.path.isfile(path.split(":")[0]):
            raise ValueError(f"--config={path}: there is no such file.")
        config_lib.check_workdir(flag_value(argv, "workdir"))
        config_flags.DEFINE_config_file("config", help_string=_CONFIG_HELP, sys_argv=list(argv))
    elif workdir:
        run_config = config_lib.load(workdir).lock()
        config_flags.DEFINE_config_dict("config", run_config, sys_argv=list(argv))
    else:
        or_run = ", or --workdir=DIR of a run" if workdir_is_enough else ""
        raise ValueError(
            f"--config is missing: give a file, for example --config=configs/base.py{or_run}."
        )
    try:
        left_over = FLAGS(argv)[1:]
        config = FLAGS.config
        _check_groups(argv, config)
        explicit = _explicit(argv)
        # The configuration of a run is what its preset has made of it already.
        if flag_value(argv, "config") or "preset" in explicit:
            presets.apply(config, explicit)
        if path:
            data_dir = flag_value(argv, "data_dir")
            source.adopt(config, explicit, flag_value(argv, "workdir"), data_dir)
        config_lib.check(config)
    except flags.IllegalFlagValueError as error:
        _check_groups(argv, _parsed_config())
        raise ValueError(_wrong_type(error)) from error
    except (AttributeError, KeyError) as error:
        raise ValueError(_unknown_field(str(error))) from error
    except (OSError, SyntaxError, ImportError, TypeError, IndexError) as error:
        raise ValueError(f"The configuration cannot be used: {error}") from error
    return config, left_over


def _parsed_config() -> Any:
    """What has been parsed before the flag that is wrong."""
    return FLAGS["config"].value


def _print_help() -> None:
    print(sys.modules["__main__"].__doc__)
    print(FLAGS.main_module_help())
    print(
        f"  --config: {_CONFIG_HELP}\n  --config.FIELD=VALUE: Another value for one of its fields."
    )
    sys.exit(0)


def flag_value(argv: Sequence[str], name: str) -> str:
    """The value of a flag on a command line that is not parsed yet; empty if it is not there."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word.startswith("-") and word.lstrip("-").split("=")[0] == name:
            return word.split("=", 1)[1] if "=" in word else following
    return ""


def _is_override(word: str) -> bool:
    return word.startswith(("-config.", "--config."))


def _explicit(argv: Sequence[str]) -> frozenset[str]:
    """Names of the fields that the command line sets."""
    found = (re.match(r"--?(?:no)?config\.([^=]+)", word) for word in argv)
    return frozenset(match[1] for match in found if match)


def _wrong_type(error: flags.IllegalFlagValueError) -> str:
    """Names the type of the field, which absl does not."""
    text = str(error)
    name = text.removeprefix("flag ").split("=")[0]
    if not _is_override(name):
        return text
    default = config_lib.value_of(_parsed_config(), name.lstrip("-").removeprefix("config."))
    return f"{text} -- {name} takes a value of type {type(default).__name__}, such as {default!r}."


def _unknown_field(text: str) -> str:
    """A sentence for what ml_collections says of a name that no field has."""
    words = re.sub(r"(\\n|[\"'\\\s])+", " ", text).strip()
    found = re.fullmatch(r"(\w+)(?: Did you mean (\w+) .*)?", words)
    if found is None:
        return f"The configuration cannot be used: {words}"
    hint = f"did you mean {found[2]!r}?" if found[2] else "configs/base.py has all that there are."
    return f"There is no configuration field {found[1]!r}: {hint}"


def _check_groups(argv: Sequence[str], config: ConfigDict) -> None:
    """A group replaced as a whole would silently lose the fields that are not named."""
    for word in argv:
        if not _is_override(word):
            continue
        name = word.lstrip("-").split("=")[0]
        if isinstance(config_lib.value_of(config, name.removeprefix("config.")), ConfigDict | dict):
            raise ValueError(
                f"--{name} is a group of fields: set them one by one, for example"
                f" --{name}.FIELD=VALUE."
            )
