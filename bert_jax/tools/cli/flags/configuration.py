"""Resolves the configuration of a command: --config=FILE or a run's own, and --config.FIELD=VALUE.

`bert_jax/config/overrides.py` has the forms of the values. The value may be the next word; a field
that is True or False is set by --config.FIELD and --noconfig.FIELD alone.
"""

import argparse
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from ml_collections import ConfigDict

from bert_jax.config import experiments, presets, store
from bert_jax.config.group import flatten, unflatten
from bert_jax.config.overrides import set_fields, type_of, value_of
from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags.command_line import Parser, flag_value

_OVERRIDE = re.compile(r"--?(no)?config\.([^=]+)(?:=(.*))?", re.DOTALL)


def parse_config(
    parser: Parser, argv: Sequence[str], *, workdir_is_enough: bool = False
) -> tuple[RunConfig, argparse.Namespace]:
    """Parses a command line with a configuration, which is resolved and checked.

    Args:
      parser: the other flags of the command.
      argv: the command, then its flags, in any order.
      workdir_is_enough: use the configuration of the run in --workdir if there is no --config.

    Returns:
      The configuration and the other flags.

    Raises:
      UserError: for anything that is wrong on the command line or in the configuration.
    """
    parser.flag(
        "config",
        "",
        "Configuration file, such as configs/base.py, or configs/glue.py:mrpc with an argument."
        " docs/configuration.md describes all fields.",
        metavar="FILE",
    )
    parser.add_argument("--config.FIELD", metavar="VALUE", help="Value that replaces a field's.")
    parser.print_help_if_asked(argv)
    path, workdir = flag_value(argv, "config"), flag_value(argv, "workdir")
    if path:
        store.check_workdir(workdir)
        config = experiments.load(path)
    elif workdir_is_enough and workdir:
        config = store.load(workdir).to_config_dict()
    else:
        or_run = ", or --workdir=DIR of a run" if workdir_is_enough else ""
        raise UserError(
            f"--config is missing: give a file, for example --config=configs/base.py{or_run}."
        )
    texts, rest = _split(argv, config)
    flags = parser.parse(rest)
    set_fields(config, texts)
    if path:
        return _resolve(config, texts, workdir, flag_value(argv, "data_dir")), flags
    fields = dict(flatten(config))
    if "preset" in texts:  # otherwise the run has the values of its preset already
        fields = presets.with_preset(fields, texts)
    return parse(unflatten(fields)), flags


def resolve(path: str, texts: Mapping[str, str]) -> RunConfig:
    """Returns the configuration that `--config=PATH --config.NAME=TEXT ...` gives.

    Raises:
      UserError: as `parse_config`.
    """
    config = experiments.load(path)
    set_fields(config, texts)
    return _resolve(config, texts, "", "")


def _resolve(config: ConfigDict, given: Collection[str], workdir: str, data_dir: str) -> RunConfig:
    from bert_jax.data import init_from  # takes time: --help does without it

    return init_from.resolve(config.to_dict(), given, workdir, data_dir)


def _split(argv: Sequence[str], config: ConfigDict) -> tuple[dict[str, str], list[str]]:
    """Returns the texts of the overrides, by the name of their field, and the other words.

    Raises:
      UserError: a field does not exist or has no value, or a tuple is given twice.
    """
    texts: dict[str, str] = {}
    rest, words = [], iter(argv)
    for word in words:
        if word == "--":
            return texts, [*rest, word, *words]
        if not (match := _OVERRIDE.fullmatch(word)):
            rest.append(word)
            continue
        no, name, text = match.groups()
        kind = type_of(config, name)
        if kind is tuple and name in texts:
            raise UserError(
                f"--config.{name} is given more than once, but has one value, a tuple: give it"
                f" once, for example --config.{name}={value_of(config, name)!r}."
            )
        texts[name] = _text(name, text, bool(no), kind, words)
    return texts, rest


def _text(name: str, text: str | None, no: bool, kind: type, following: Iterator[str]) -> str:
    """Returns the text of a value, which may be the next word or a switch's own name."""
    if no and (kind is not bool or text is not None):
        raise UserError(f"--noconfig.{name} is for a field that is True or False, without a value.")
    if text is None and kind is bool:
        return "false" if no else "true"
    if text is None and (text := next(following, None)) is None:
        raise UserError(f"--config.{name} lacks its value: write --config.{name}=VALUE.")
    return text
