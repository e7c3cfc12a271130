"""Sets fields of a configuration to values that are given as text.

A value has the type of its field:

    steps=1000                                int, also 0x3e8
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
from bert_jax.config.renames import check_names, suggestion
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
            values[name] = _parse(text, kind) if isinstance(text, str) else kind(text)
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            field = value_of(config, name)
            raise UserError(
                f"--config.{name}={text} is invalid: --config.{name} takes a value of type"
                f" {kind.__name__}, such as {field!r}."
            ) from None
    config.update_from_flattened_dict(values)


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
            check_names([name], is_labelled=True)
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
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    if kind is tuple:
        return _tuple(text)
    if kind in (float, str):
        return kind(text)
    raise TypeError


def _tuple(text: str) -> tuple:
    """Parses a tuple: a literal tuple, list items, one literal, or one word."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.search(r"[,\s]", text):
            raise
        value = text  # such as a path
    return tuple(value) if isinstance(value, tuple | list) else (value,)
