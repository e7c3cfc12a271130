"""Resolves the configuration of a command: --config=FILE or a run's own, and --config.FIELD=VALUE.

A value has the type of its field:

    --config.steps=1000                     int, also 0x3e8
    --config.optimizer.learning_rate 1e-4   float; the value may be the next word
    --config.model.remat                    bool: also =true, =false, --noconfig.model.remat
    --config.data.source=text:a.txt         str
    --config.phases="((128, 0.9), (512, 0.1))"   tuple, as a Python literal
"""

import argparse
import ast
import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import checks, experiments, presets, store
from bert_jax.config.fields import fields, value_of
from bert_jax.config.renames import check_names
from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import init_from
from bert_jax.tools.cli.flags.command_line import Parser, flag_value, hide_library_warnings

_OVERRIDE = re.compile(r"--?(no)?config\.([^=]+)(?:=(.*))?", re.DOTALL)
_BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def parse_config(
    parser: Parser, argv: Sequence[str], *, workdir_is_enough: bool = False
) -> tuple[ConfigDict, argparse.Namespace]:
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
        " bert_jax/config/defaults.py describes all fields.",
        metavar="FILE",
    )
    parser.add_argument("--config.FIELD", metavar="VALUE", help="Value that replaces a field's.")
    parser.print_help_if_asked(argv)
    hide_library_warnings()
    path, workdir = flag_value(argv, "config"), flag_value(argv, "workdir")
    if path:
        store.check_workdir(workdir)
        config = experiments.load(path)
    elif workdir_is_enough and workdir:
        config = store.load(workdir).lock()
    else:
        or_run = ", or --workdir=DIR of a run" if workdir_is_enough else ""
        raise UserError(
            f"--config is missing: give a file, for example --config=configs/base.py{or_run}."
        )
    texts, rest = _split(argv, config)
    flags = parser.parse(rest)
    _set_fields(config, texts)
    if path:
        _complete(config, texts, workdir, flag_value(argv, "data_dir"))
    else:
        if "preset" in texts:  # otherwise the run has the values of its preset already
            presets.apply(config, texts)
        checks.check(config)
    return config, flags


def resolve(path: str, texts: Mapping[str, str]) -> ConfigDict:
    """Returns the configuration that `--config=PATH --config.NAME=TEXT ...` gives.

    Raises:
      UserError: as `parse_config`.
    """
    config = experiments.load(path)
    _set_fields(config, texts)
    _complete(config, texts, "", "")
    return config


def _complete(config: ConfigDict, given: Collection[str], workdir: str, data_dir: str) -> None:
    presets.apply(config, given)
    init_from.resolve(config, given, workdir, data_dir)
    checks.check(config)


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
        kind = _type_of(config, name)
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


def _set_fields(config: ConfigDict, texts: Mapping[str, str]) -> None:
    """Sets fields to the values of texts.

    Raises:
      UserError: a field does not exist, or a text is not a value of its type.
    """
    values = {}
    for name, text in texts.items():
        buckets.check_scheme(f"--config.{name}", text)
        kind = _type_of(config, name)
        try:
            values[name] = _parse(text, kind)
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            field = value_of(config, name)
            raise UserError(
                f"--config.{name}={text} is invalid: --config.{name} takes a value of type"
                f" {kind.__name__}, such as {field!r}."
            ) from None
    config.update_from_flattened_dict(values)


def _type_of(config: ConfigDict, name: str) -> type:
    """Returns the type of a field.

    Raises:
      UserError: there is no such field, or it is a group.
    """
    group, parts = config, name.split(".")
    for part in parts:
        if not isinstance(group, ConfigDict) or part not in group:
            check_names([name], is_labelled=True)
            raise UserError(
                f"There is no configuration field {part!r}: {_hint(config, group, part)}"
            )
        kind, group = group.get_type(part), group[part]
    if isinstance(group, ConfigDict | dict):
        raise UserError(
            f"--config.{name} is a group of fields: set them one by one, for example"
            f" --config.{name}.FIELD=VALUE."
        )
    return kind


def _hint(config: ConfigDict, group: Any, part: str) -> str:
    """Returns a suggestion for a name that is not in a group: a similar one, or another group's."""
    near = list(group.keys()) if isinstance(group, ConfigDict) else []
    if close := difflib.get_close_matches(part, near, 1):
        return f"did you mean {close[0]!r}?"
    elsewhere = [name for name, _ in fields(config) if name.endswith(f".{part}")]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return "bert_jax/config/defaults.py has them all."


def _parse(text: str, kind: type) -> Any:
    """Returns the value of a text."""
    if kind is bool:
        return _BOOLS[text.lower()]
    if kind is int:
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    if kind is tuple:
        return _tuple(text)
    if kind in (float, str):
        return kind(text)
    raise TypeError


def _tuple(text: str) -> tuple:
    """Returns a tuple: of a literal, of the items of a list, of one literal, or of one word."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.search(r"[,\s]", text):
            raise
        value = text  # such as a path
    return tuple(value) if isinstance(value, tuple | list) else (value,)
