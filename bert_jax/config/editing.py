"""Edits a configuration: which fields somebody has set, values given as text, and other names.

A value has the type of its field:

    steps=1000                                int, also 1e3, 1_000 and 0x3e8
    optimizer.learning_rate=1e-4              float
    model.remat=true                          bool: true, t, 1, false, f, 0
    data.source=text:a.txt                    str
    phases=((128, 0.9), (512, 0.1))           tuple, as a Python literal
"""

import ast
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.group import flatten
from bert_jax.files import buckets
from bert_jax.files.errors import UserError

# Attribute with the names of the fields that were set.
_WRITTEN = "_written"


class Editable(ConfigDict):
    """A ConfigDict that remembers which fields were set after it was made, whatever their values.

    >>> config = Editable({"steps": 5, "data": {"seed": 1}})
    >>> config.data.seed = 1
    >>> written(config)
    {'data.seed'}
    """

    def __init__(self, *args: Any, **kwargs: Any):
        object.__setattr__(self, _WRITTEN, set())
        super().__init__(*args, **kwargs)
        getattr(self, _WRITTEN).clear()

    def __setitem__(self, key: str, value: Any) -> None:
        if self.is_locked and key not in self:
            fields = [name for name, _ in flatten(self)]
            raise KeyError(f"There is no field {key!r} here: {suggestion(key, self, fields)}")
        if isinstance(value, ConfigDict | dict) and not isinstance(value, Editable):
            value = Editable(value)
        super().__setitem__(key, value)
        getattr(self, _WRITTEN).add(key)


def written(config: Any) -> set[str]:
    """Returns the dotted names of the fields that were set; of other objects, none."""
    return set(_written(config, ""))


def forget_written(config: Any) -> None:
    """Takes the values of a configuration as those that it was made with."""
    if isinstance(config, Editable):
        getattr(config, _WRITTEN).clear()
        for name in config:
            forget_written(config[name])


def _written(config: Any, prefix: str) -> Iterator[str]:
    if isinstance(config, Editable):
        for name in config:
            if isinstance(config[name], ConfigDict):
                yield from _written(config[name], f"{prefix}{name}.")
            elif name in getattr(config, _WRITTEN):
                yield prefix + name


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


# Name in other programs, and habits -> our names; the first that a configuration has is meant.
OTHER_NAMES = {
    "batch_size": ("global_batch_size",),
    "train_batch_size": ("global_batch_size",),
    "per_device_train_batch_size": ("global_batch_size",),
    "eval_batch_size": ("eval.batch_size",),
    "per_device_eval_batch_size": ("eval.batch_size",),
    "gradient_accumulation_steps": ("microbatch_size",),
    "lr": ("optimizer.learning_rate",),
    "warmup_ratio": ("optimizer.warmup",),
    "warmup_steps": ("optimizer.warmup",),
    "warmup_proportion": ("optimizer.warmup",),
    "max_grad_norm": ("optimizer.clip_norm",),
    "max_len": ("max_length", "phases"),
    "max_length": ("max_length", "phases"),
    "phases": ("max_length",),
    "max_seq_length": ("max_length", "phases"),
    "sequence_length": ("max_length", "phases"),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "max_steps": ("steps",),
    "num_train_steps": ("steps",),
    "log_every": ("log.every",),
    "logging_steps": ("log.every",),
    "eval_every": ("eval.every",),
    "eval_steps": ("eval.every",),
    "save_every": ("checkpoint.every",),
    "save_steps": ("checkpoint.every",),
    "early_stopping_patience": ("eval.patience",),
    "metric_for_best_model": ("checkpoint.best_metric",),
    "fp16": ("dtype",),
    "bf16": ("dtype",),
    "mixed_precision": ("dtype",),
    "gradient_checkpointing": ("model.remat",),
    "dropout": ("model.dropout_rate",),
    "hidden_dropout_prob": ("model.dropout_rate",),
    "attention_probs_dropout_prob": ("model.attention_dropout_rate",),
    "num_hidden_layers": ("model.num_layers",),
    "num_attention_heads": ("model.num_heads",),
    "mlm_probability": ("data.masked_lm_prob",),
    "text_column": ("task.text_a", "data.field"),
    "sentence1_key": ("task.text_a",),
    "sentence2_key": ("task.text_b",),
    "label_column": ("task.label",),
    "label_column_name": ("task.label",),
    "learning_rate": ("optimizer.learning_rate",),
    "weight_decay": ("optimizer.weight_decay",),
    "max_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "model_name_or_path": ("init_from",),
    "train_file": ("data.train", "data.source"),
    "validation_file": ("data.eval",),
}
# Values of fields whose form differs from what the other names suggest.
_EXAMPLES = {
    "dtype": "bfloat16",
    "log.every": "100",
    "microbatch_size": "8",
    "optimizer.warmup": "10%",
    "phases": "((128, 1.0),)",
}


def suggestion(name: str, group: Iterable[str], fields: Iterable[str]) -> str:
    """Returns the end of a message about a field that does not exist: what may have been meant.

    Args:
      name: last part of the field's name.
      group: names of the group in which it was looked for.
      fields: dotted names of all fields.
    """
    fields = list(fields)
    leaves = {field.rpartition(".")[2]: field for field in reversed(fields)}
    found = next((field for field in OTHER_NAMES.get(name, ()) if field in fields), "")
    found = found or leaves.get(name, "")
    if not found and (close := difflib.get_close_matches(name, list(group), 1)):
        found = close[0]
    if not found and (close := difflib.get_close_matches(name, leaves, 1, 0.75)):
        found = leaves[close[0]]
    if not found:
        return "docs/configuration.md has them all."
    example = _EXAMPLES.get(found) if name in OTHER_NAMES else None
    more = f", for example --config.{found}={shlex.quote(example)}" if example else ""
    return f"did you mean {found!r}{more}?"
