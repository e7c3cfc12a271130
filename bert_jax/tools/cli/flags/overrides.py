"""The configuration of a command: --config=FILE or a run's own, and --config.FIELD=VALUE.

Values on the command line have the type of their field.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax.config import checks, experiments, presets, store
from bert_jax.config.fields import value_of
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import init_from
from bert_jax.tools.cli.flags.command_line import Parser, flag_value, hide_library_warnings

_OVERRIDE = re.compile(r"--?(?:no)?config\.([^=]+)(?:=.*)?", re.DOTALL)


def parse_config(
    parser: Parser, argv: Sequence[str], *, workdir_is_enough: bool = False
) -> tuple[ConfigDict, argparse.Namespace]:
    """Parses a command line with a configuration, which is resolved and validated.

    Args:
      parser: the other flags of the command.
      argv: the command, then its flags, in any order.
      workdir_is_enough: use the configuration of the run in --workdir if there is no --config.

    Returns:
      The configuration and the other flags.

    Raises:
      UserError: for anything that is wrong on the command line or in the configuration.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="Configuration file, such as configs/base.py, or configs/glue.py:mrpc with an"
        " argument. bert_jax/config/defaults.py describes all fields.",
    )
    parser.add_argument("--config.FIELD", metavar="VALUE", help="Value that replaces a field's.")
    parser.print_help_if_asked(argv)
    hide_library_warnings()
    path, workdir = flag_value(argv, "config"), flag_value(argv, "workdir")
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    if path:
        # ml_collections needs the file before the overrides.
        argv = [argv[0], f"--config={experiments.find(path)}", *without_config(argv[1:])]
        experiments.allow_import()
        store.check_workdir(workdir)
        config_flags.DEFINE_config_file("config", sys_argv=argv, flag_values=values)
    elif workdir_is_enough and workdir:
        config = store.load(workdir).lock()
        config_flags.DEFINE_config_dict("config", config, sys_argv=argv, flag_values=values)
    else:
        or_run = ", or --workdir=DIR of a run" if workdir_is_enough else ""
        raise UserError(
            f"--config is missing: give a file, for example --config=configs/base.py{or_run}."
        )
    explicit = _explicit(argv)
    try:
        _, *rest = values(argv, known_only=True)
        config: Any = values["config"].value
        _check_groups(explicit, config)
        _check_repeated(explicit, config)
    except flags.IllegalFlagValueError as error:
        config = values["config"].value
        if config is None:  # get_config raised the error, whose traceback ends in its message
            message = str(error).strip().splitlines()[-1].partition(": ")[2]
            raise UserError(f"--config={path}: {message}") from error
        _check_groups(explicit, config)
        raise UserError(_wrong_type(error, config)) from error
    except flags.Error as error:
        raise UserError(str(error)) from error
    except (AttributeError, KeyError) as error:
        raise UserError(_unknown_field(str(error))) from error
    except (OSError, SyntaxError, ImportError, TypeError, IndexError) as error:
        raise UserError(f"The configuration cannot be used: {error}") from error
    others = parser.parse([argv[0], *rest])
    # The configuration of a run has the values of its preset already.
    if path or "preset" in explicit:
        presets.apply(config, explicit)
    if path:
        init_from.resolve(config, explicit, workdir, flag_value(argv, "data_dir"))
    checks.check(config)
    return config, others


def without_config(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line without --config=FILE."""
    rest, following = [], iter(words)
    for word in following:
        if re.fullmatch(r"--?config", word):
            next(following, None)
        elif not re.match(r"--?config=", word):
            rest.append(word)
    return rest


def _explicit(argv: Sequence[str]) -> Counter[str]:
    """Returns how often the command line sets each field."""
    return Counter(match[1] for word in argv if (match := _OVERRIDE.fullmatch(word)))


def _check_groups(explicit: Counter[str], config: ConfigDict) -> None:
    """A group replaced as a whole would silently lose the fields that are not given."""
    for name in explicit:
        if isinstance(value_of(config, name), ConfigDict | dict):
            raise UserError(
                f"--config.{name} is a group of fields: set them one by one, for example"
                f" --config.{name}.FIELD=VALUE."
            )


def _check_repeated(explicit: Counter[str], config: ConfigDict) -> None:
    """ml_collections would join the values of a repeated tuple."""
    for name, count in explicit.items():
        if count > 1 and isinstance(value_of(config, name), tuple):
            raise UserError(
                f"--config.{name} is given {count} times, but has one value, a tuple: give it once,"
                f" for example --config.{name}={value_of(config, name)!r}."
            )


def _wrong_type(error: flags.IllegalFlagValueError, config: ConfigDict) -> str:
    """Returns absl's message with the type of the field."""
    text = str(error)
    match = _OVERRIDE.match(text.removeprefix("flag "))
    if match is None:
        return text
    default = value_of(config, match[1])
    name = f"--config.{match[1]}"
    return f"{text} -- {name} takes a value of type {type(default).__name__}, such as {default!r}."


def _unknown_field(text: str) -> str:
    """Returns a message for ml_collections' error about a name that no field has."""
    words = re.sub(r"(\\n|[\"'\\\s])+", " ", text).strip()
    found = re.fullmatch(r"(\w+)(?: Did you mean (\w+) .*)?", words)
    if found is None:
        return f"The configuration cannot be used: {words}"
    hint = (
        f"did you mean {found[2]!r}?" if found[2] else "bert_jax/config/defaults.py has them all."
    )
    return f"There is no configuration field {found[1]!r}: {hint}"
