"""Sets fields of a configuration to values that are given as text.

A value has the type of its field:

    steps=1000                                int, also 1e3, 1_000 and 0x3e8
    optimizer.learning_rate=1e-4              float
    model.remat=true                          bool: true, t, 1, false, f, 0
    data.source=text:a.txt                    str
    phases=((128, 0.9), (512, 0.1))           tuple, as a Python literal
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.group import flatten
from bert_jax.config.phases import LENGTHS
from bert_jax.config.renames import suggestion
from bert_jax.files import buckets
from bert_jax.files.errors import UserError

_BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def set_fields(config: ConfigDict, texts: Mapping[str, Any]) -> None:
    """Sets fields to values, or to those of texts.

    Raises:
      UserError: a field does not exist, or a value is not of its type.
    """
    values = {}
    for name, text in texts.items():
        kind = type_of(config, name)
        if isinstance(text, str):
            buckets.check_scheme(f"--config.{name}", text)
        try:
            values[name] = _parse(text, kind) if isinstance(text, str) else _convert(text, kind)
        except (ValueError, SyntaxError, KeyError, TypeError, OverflowError):
            field = value_of(config, name)
            raise UserError(
                f"--config.{name}={text} is invalid: --config.{name} takes a value of type"
                f" {kind.__name__}, such as {field!r}."
            ) from None
    config.update_from_flattened_dict(values)


def merged(texts: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of fields with later ones; a length of training replaces any other."""
    replaced = {*LENGTHS} if {*LENGTHS} & later.keys() else set()
    return {name: text for name, text in texts.items() if name not in replaced} | {**later}


def value_of(config: ConfigDict, name: str) -> Any:
    """Returns the value of a field, given its dotted name."""
    for part in name.split("."):
        config = config[part]
    return config


def type_of(config: ConfigDict, name: str) -> type:
    """Returns the type of a field.

    Raises:
      UserError: there is no such field, or it is a group.
    """
    group, parts = config, name.split(".")
    for part in parts:
        if not isinstance(group, ConfigDict) or part not in group:
            near = group.keys() if isinstance(group, ConfigDict) else ()
            hint = suggestion(part, near, (field for field, _ in flatten(config)))
            raise UserError(f"There is no configuration field {part!r}: {hint}")
        kind, group = group.get_type(part), group[part]
    if isinstance(group, ConfigDict | dict):
        raise UserError(
            f"--config.{name} is a group of fields: set them one by one, for example"
            f" --config.{name}.FIELD=VALUE."
        )
    return kind


def _parse(text: str, kind: type) -> Any:
    """Returns the value of a text."""
    if kind is bool:
        return _BOOLS[text.lower()]
    if kind is int:
        return int(text, 0) if text[:2] in ("0x", "0o") else _convert(_number(text), int)
    if kind is tuple:
        return _tuple(text)
    if kind in (float, str):
        return kind(text)
    raise TypeError


def _number(text: str) -> int | float:
    """Returns the number of a text such as -5, 1_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _convert(value: Any, kind: type) -> Any:
    """Returns a value in a type, unless that would change it."""
    if kind is int and value != int(value):
        raise ValueError
    return kind(value)


def _tuple(text: str) -> tuple:
    """Parses a tuple: a literal tuple, list items, one literal, or one word."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.search(r"[,\s]", text):
            raise
        value = text  # such as a path
    return tuple(value) if isinstance(value, tuple | list) else (value,)
