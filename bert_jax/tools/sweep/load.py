"""Loads a sweep file and calls its function with the settings of the command line."""

import difflib
import importlib.util
import inspect
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.config import experiments
from bert_jax.files.errors import UserError
from bert_jax.tools.sweep.plan import Sweep


def load_sweep(path: str, settings: Mapping[str, str]) -> Sweep:
    """Returns the sweep of a file.

    Args:
      path: of the file, possibly with the value of its first setting, as in
        configs/sweeps/table5.py:mini. Files of the package are found as configurations are.
      settings: values of further settings, as text; each has the type of the setting's default.

    Raises:
      UserError: there is no such file, it is not a sweep file, or a setting does not exist or has
        a value that it cannot have.
    """
    file, colon, argument = _find(path).partition(":")
    make = _read(file)
    parameters = inspect.signature(make).parameters
    settings = dict(settings)
    if colon:
        if not parameters:
            raise UserError(f"--sweep={path}: the file has no settings, so {argument!r} has none.")
        settings.setdefault(next(iter(parameters)), argument)
    values = {name: _value(name, text, parameters) for name, text in settings.items()}
    try:
        sweep = make(**values)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not isinstance(sweep, Sweep):
        raise UserError(f"{file}: get_sweep returns {type(sweep).__name__}, not a Sweep.")
    return sweep


def _find(path: str) -> str:
    try:
        return experiments.find(path)
    except UserError as error:
        raise UserError(str(error).replace("--config=", "--sweep=")) from None


def _read(file: str) -> Callable[..., Any]:
    """Returns `get_sweep` of a file."""
    experiments.allow_import()
    spec = importlib.util.spec_from_file_location(f"sweep_{pathlib.Path(file).stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"--sweep={file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError, NameError, AttributeError, TypeError) as error:
        raise UserError(f"--sweep={file} cannot be read: {error}.") from error
    make = getattr(module, "get_sweep", None)
    if not callable(make):
        raise UserError(f"--sweep={file} is not a sweep file: it has no function get_sweep.")
    return make


def _value(name: str, text: str, parameters: Mapping[str, inspect.Parameter]) -> Any:
    """Returns the value of a setting, of the type of its default."""
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(
            f"Unknown setting --set {name}.{hint} Available: {', '.join(parameters) or 'none'}."
        )
    kind = type(parameters[name].default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        what = {bool: "true or false", int: "an integer", float: "a number"}[kind]
        raise UserError(f"--set {name}={text} is not {what}.") from None


def parse_settings(words: list[str]) -> dict[str, str]:
    """Returns NAME=VALUE words as a dict.

    Raises:
      UserError: for another form, or a setting that is given twice.
    """
    settings: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"--set {word!r} is not NAME=VALUE, such as --set scale=mini.")
        if name in settings:
            raise UserError(f"--set {name} is given twice: {settings[name]!r} and {value!r}.")
        settings[name] = value
    return settings
