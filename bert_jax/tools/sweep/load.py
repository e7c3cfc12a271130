"""Loads a sweep file and calls its function with the settings of the command line."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax.config import experiments
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.plan import Sweep


def load_sweep(path: str, words: Iterable[str] = ()) -> Sweep:
    """Returns the sweep of a file.

    Args:
      path: path of the file, possibly with the value of its first setting, as in
        configs/sweeps/table5.py:mini. Files of the package are found as configurations are.
      words: further settings, NAME=VALUE; a value has the type of the setting's default.

    Raises:
      UserError: there is no such file, it is not a sweep file, or a setting does not exist or has
        a value that it cannot have.
    """
    file, *argument = path.split(":", 1)
    make = getattr(experiments.load_module(file, "--sweep"), "get_sweep", None)
    if not callable(make):
        raise UserError(f"--sweep={file} is not a sweep file: it has no function get_sweep.")
    parameters, texts = inspect.signature(make).parameters, _parsed(words)
    if argument:
        if not parameters:
            raise UserError(
                f"--sweep={path}: the file has no settings, so {argument[0]!r} has none."
            )
        texts.setdefault(next(iter(parameters)), argument[0])
    values = {name: _value(name, text, parameters) for name, text in texts.items()}
    try:
        sweep = make(**values)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not isinstance(sweep, Sweep):
        raise UserError(f"{file}: get_sweep returns {type(sweep).__name__}, not a Sweep.")
    return sweep


def _parsed(words: Iterable[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"--set {word!r} is not NAME=VALUE, such as --set scale=mini.")
        if name in settings:
            raise UserError(f"--set {name} is given twice: {settings[name]!r} and {value!r}.")
        settings[name] = value
    return settings


def _value(name: str, text: str, parameters: Mapping[str, inspect.Parameter]) -> Any:
    """Returns the value of a setting, converted to its default's type."""
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(
            f"Unknown setting --set {name}.{hint} Available: {', '.join(parameters) or 'none'}."
        )
    kind = type(parameters[name].default)
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        what = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise UserError(f"--set {name}={text} is not {what}.") from None
