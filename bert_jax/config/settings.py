"""From a ConfigDict to what the rest of the program takes: checks, dataclasses, config.json.

Only this file and the programs (train, evaluate, predict, prepare) see the whole ConfigDict.
Nothing here imports jax, so that a mistake on the command line is answered at once.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.data import DataConfig
from bert_jax.config.phases import make_phases, parse_duration

# Numbers that may be 0; every other number of the configuration is above 0.
_MAY_BE_ZERO = (
    "seed epochs examples tokens microbatch_size nonfinite_limit model.dropout_rate"
    " model.attention_dropout_rate data.seed data.short_seq_prob data.max_predictions_per_seq"
    " data.validation_share data.num_processes optimizer.weight_decay optimizer.clip_norm"
    " optimizer.beta1 optimizer.learning_rate eval.batches eval.batch_size eval.patience"
    " checkpoint.keep_best reinit_layers"
).split()
_BELOW_ZERO = ("model.mask_value",)
_BELOW_ONE = (
    "model.dropout_rate model.attention_dropout_rate data.short_seq_prob data.masked_lm_prob"
    " data.validation_share optimizer.beta1 optimizer.beta2"
).split()
_DURATIONS = ("optimizer.warmup", "log.every", "eval.every", "checkpoint.every")
TASKS = ("pretraining", "classification", "tagging", "span", "multiple_choice")
_CHOICES = {
    "task": TASKS,
    "dtype": ("float32", "bfloat16"),
    "prng_impl": ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg"),
    "nonfinite": ("abort", "skip"),
    "model.activation": ("gelu", "gelu_tanh"),
    "checkpoint.use": ("newest", "best"),
}
_PRETRAINING_METRICS = (
    "loss masked_lm_loss masked_lm_accuracy next_sentence_loss next_sentence_accuracy"
).split()
# What a run may change when it is resumed: nothing that decides the numbers it computes. (What a
# preset decides stands in the fields that it sets.)
_FREE_TO_CHANGE = (
    "preset",
    "seeds",
    "checkpoint.",
    "eval.",
    "log.",
    "mesh.",
    "data.dir",
    "data.num_processes",
)


def fields(config: ConfigDict | dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) of each field, in alphabetical order."""
    for name, value in sorted(config.items()):
        if isinstance(value, ConfigDict | dict):
            yield from fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def value_of(config: ConfigDict, name: str) -> Any:
    """The value of a field by its dotted name."""
    for part in name.split("."):
        config = config[part]
    return config


def check(config: ConfigDict) -> None:
    """Refuses values that no run can use.

    Raises:
      ValueError: naming the field, the value it has and the values it may have.
    """
    for name, value in fields(config):
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(name, value)
    for name in _DURATIONS:
        parse_duration(value_of(config, name), name)
    for name, allowed in _CHOICES.items():
        if (value := value_of(config, name)) not in allowed:
            raise ValueError(f"config.{name}={value!r} is none of {', '.join(allowed)}.")
    given = [name for name in ("epochs", "examples", "tokens") if config[name]]
    if len(given) > 1:
        raise ValueError(
            f"The length of training is given twice: config.{' and config.'.join(given)}."
        )
    if config.model.type_vocab_size < 2:
        raise ValueError("config.model.type_vocab_size=1 is too few: a row has two segments.")
    try:
        re.compile("|".join(config.optimizer.no_decay))
    except (re.error, TypeError) as error:
        raise ValueError(
            f"config.optimizer.no_decay={config.optimizer.no_decay!r} are no regular expressions:"
            f" {error}."
        ) from None
    if config.model.hidden_size % config.model.num_heads:
        raise ValueError(
            f"config.model.hidden_size={config.model.hidden_size} is not divisible by"
            f" config.model.num_heads={config.model.num_heads}."
        )
    for phase in make_phases(config, steps=100):
        if phase.sequence_length > config.model.max_position_embeddings:
            raise ValueError(
                f"A sequence length of {phase.sequence_length} in config.phases is above"
                f" config.model.max_position_embeddings={config.model.max_position_embeddings}."
            )
        if config.microbatch_size and phase.batch_size % config.microbatch_size:
            raise ValueError(
                f"The global batch size {phase.batch_size} is not divisible by"
                f" config.microbatch_size={config.microbatch_size}."
            )
    if config.task == "pretraining":
        _check_pretraining(config)
    else:
        _check_finetuning(config)


def _check_pretraining(config: ConfigDict) -> None:
    data_config(config)
    if config.model.next_sentence and config.data.segments != "pairs":
        raise ValueError(
            "config.model.next_sentence=True needs config.data.segments='pairs', not"
            f" {config.data.segments!r}, which has no second segment: set one or the other."
        )
    best = config.checkpoint.best_metric
    if best not in _PRETRAINING_METRICS:
        raise ValueError(
            f"config.checkpoint.best_metric={best!r} is none of {', '.join(_PRETRAINING_METRICS)}."
        )
    if not config.model.next_sentence and best.startswith("next_sentence"):
        raise ValueError(
            f"config.checkpoint.best_metric={best!r} is not measured with"
            " config.model.next_sentence=False."
        )


def _check_finetuning(config: ConfigDict) -> None:
    if "head" not in config:
        raise ValueError(
            f"config.task={config.task!r} is set by its own configuration: take one such as"
            " configs/classification.py."
        )
    if len(config.phases) > 1:
        raise ValueError(
            f"config.phases={config.phases!r}: fine-tuning has one, such as ((128, 1.0),)."
        )
    if not config.metrics:
        raise ValueError("config.metrics is empty: name a score, such as accuracy.")
    best, known = config.checkpoint.best_metric, ("loss", *config.metrics)
    if best not in known:
        raise ValueError(f"config.checkpoint.best_metric={best!r} is none of {', '.join(known)}.")
    if config.data.batches not in ("rows", "tokens"):
        raise ValueError(f"config.data.batches={config.data.batches!r} is not rows or tokens.")
    lengths = config.data.lengths
    if not lengths or list(lengths) != sorted(set(lengths)) or min(lengths) < 1:
        raise ValueError(f"config.data.lengths={lengths!r} are not ascending lengths of rows.")
    if config.reinit_layers > config.model.num_layers:
        raise ValueError(
            f"config.reinit_layers={config.reinit_layers} of {config.model.num_layers} layers."
        )


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"config.{name}={value} is not a finite number.")
    if name.startswith("mesh."):
        if value < 1 and value != -1:
            raise ValueError(f"config.{name}={value} must be at least 1, or -1 for what is left.")
    elif name == "optimizer.frozen_layers":
        if value < -1:
            raise ValueError(f"config.{name}={value} must be 0 or above, or -1 for all layers.")
    elif name == "head.null_threshold":
        pass
    elif name in _BELOW_ZERO:
        if value >= 0:
            raise ValueError(f"config.{name}={value} must be below 0.")
    elif value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        least = "0 or above" if name in _MAY_BE_ZERO else "above 0"
        raise ValueError(f"config.{name}={value} must be {least}.")
    if name in _BELOW_ONE and value >= 1:
        raise ValueError(f"config.{name}={value} must be below 1.")


def data_config(config: ConfigDict) -> DataConfig:
    """The settings that decide the data's bytes, for bert_jax.prepare.

    Raises:
      ValueError: for a setting that is not allowed.
    """
    phases = make_phases(config, steps=0)
    lengths = sorted({phase.sequence_length for phase in phases})
    predictions: dict[int, int] = {}
    for phase in phases:
        length, most = phase.sequence_length, phase.max_predictions_per_seq
        if config.data.mode == "static" and predictions.get(length, most) != most:
            raise ValueError(
                f"config.phases has sequences of {length} tokens with {predictions[length]} and"
                f" with {most} predictions, and static data are made for each length once: give"
                " the same number, or take config.data.mode=dynamic."
            )
        predictions[length] = most
    names = {field.name for field in dataclasses.fields(DataConfig)}
    values = {name: value for name, value in config.data.items() if name in names}
    return DataConfig(
        **values
        | {
            "vocab_size": config.model.vocab_size,
            "sequence_lengths": tuple(lengths),
            "max_predictions_per_seq": tuple(predictions[length] for length in lengths),
        }
    )


def data_dir(config: ConfigDict, workdir: str) -> str:
    """Where vocabulary and shards of the run are."""
    return config.data.get("dir") or os.path.join(workdir, "data")


def differences(old: ConfigDict, new: ConfigDict) -> list[str]:
    """Lines `name: old -> new` of the fields in which two configurations differ and may not."""
    before, after = dict(fields(old)), dict(fields(new))
    return [
        f"{name}: {before.get(name, 'missing')!r} -> {after.get(name, 'missing')!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and not name.startswith(_FREE_TO_CHANGE)
    ]


def save(config: ConfigDict, workdir: str) -> None:
    """Writes the resolved configuration to workdir/config.json, whole or not at all."""
    path = pathlib.Path(workdir, "config.json")
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n")
    temporary.replace(path)


def load(workdir: str) -> ConfigDict:
    """Reads workdir/config.json.

    Raises:
      ValueError: if there is none, or none that can be read, or that of another program.
    """
    path = pathlib.Path(workdir, "config.json")
    if not path.is_file():
        raise ValueError(f"{workdir} holds no run: there is no config.json in it.")
    check_workdir(workdir)
    try:
        return from_json(json.loads(path.read_text()))
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): give the configuration with --config."
        ) from None


def check_workdir(workdir: str) -> None:
    """Refuses a folder in which another program keeps a model: a run would overwrite its files.

    Raises:
      ValueError: if the folder's config.json is that of another program.
    """
    try:
        values = json.loads(pathlib.Path(workdir, "config.json").read_text())
    except (OSError, ValueError):
        return  # There is none, or one that was damaged.
    if isinstance(values, dict) and "model" not in values:
        raise ValueError(
            f"{workdir} is no workdir: its config.json is another program's. Name another folder;"
            f" a BERT becomes a workdir by python -m bert_jax.convert from_hf {workdir} NEW."
        )


def from_json(values: dict[str, Any]) -> ConfigDict:
    """The configuration that was written as JSON, which knows no tuples."""
    return ConfigDict({name: _tuples(value) for name, value in values.items()})


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def made_anew(config: ConfigDict) -> str:
    """Regular expression of the parameters that are not taken from `init_from`; empty: none."""
    count, top = config.get("reinit_layers", 0), config.model.num_layers
    layers = "|".join(str(layer) for layer in range(top - count, top))
    return rf"^bert/(pooler|encoder/layer_({layers}))/" if count else ""
