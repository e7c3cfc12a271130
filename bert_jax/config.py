"""From a ConfigDict to what the rest of the program takes: checks, phases, durations, dataclasses.

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

from bert_jax.data.config import DataConfig

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

_DURATION = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e\d\d?)?)\s*(steps?|epochs?|examples?|tokens?|%)?")


def fields(config: ConfigDict | dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) of each field, in alphabetical order."""
    for name, value in sorted(config.items()):
        if isinstance(value, ConfigDict | dict):
            yield from fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


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


def value_of(config: ConfigDict, name: str) -> Any:
    """The value of a field by its dotted name."""
    for part in name.split("."):
        config = config[part]
    return config


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training at one sequence length: steps first_step to last_step - 1."""

    sequence_length: int
    batch_size: int
    max_predictions_per_seq: int
    share: float
    first_step: int
    last_step: int


def make_phases(config: ConfigDict, steps: int) -> tuple[Phase, ...]:
    """The phases of a run of `steps` updates, in order and without a gap.

    Raises:
      ValueError: for a phase of another form, or shares that do not add up to 1.
    """
    entries = config.phases
    if not entries or not all(map(_is_phase, entries)):
        raise ValueError(
            f"config.phases={entries!r} is not a tuple of (sequence length, share of the steps"
            "[, batch size[, predictions]]), for example ((128, 0.9), (512, 0.1))."
        )
    if not math.isclose(total := sum(e[1] for e in entries), 1.0) or min(e[1] for e in entries) < 0:
        raise ValueError(f"The shares of the steps in config.phases add up to {total}, not to 1.")
    phases, done = [], 0.0
    for length, share, *rest in entries:
        batch_size, predictions = (*rest, *(0, 0)[len(rest) :])
        if config.task == "pretraining":
            predictions = predictions or _most_predictions(config, length)
        first, done = round(done * steps), done + share
        phases.append(
            Phase(
                sequence_length=length,
                batch_size=batch_size or config.global_batch_size,
                max_predictions_per_seq=predictions,
                share=share,
                first_step=first,
                last_step=round(done * steps),
            )
        )
    return tuple(phases)


def most_masks(length: int, prob: float, rounding: str) -> int:
    """The most tokens of a sequence that are masked, by config.data.mask_rounding.

    With `bernoulli` any number is possible. Six standard deviations above the mean are allowed,
    which fewer than one row in ten million exceeds.
    """
    mean = length * prob
    if rounding == "bernoulli":
        return min(length, math.ceil(mean + 6 * math.sqrt(mean * (1 - prob))))
    return max(1, math.ceil(mean) if rounding == "stochastic" else round(mean))


def _most_predictions(config: ConfigDict, sequence_length: int) -> int:
    data = config.data
    return data.max_predictions_per_seq or most_masks(
        sequence_length, data.masked_lm_prob, data.mask_rounding
    )


def _is_phase(entry: Any) -> bool:
    if not (isinstance(entry, tuple | list) and 2 <= len(entry) <= 4):
        return False
    length, share, *rest = entry
    counts = all(type(number) is int and number >= 0 for number in (length, *rest))
    return counts and isinstance(share, int | float)


def parse_duration(text: str, name: str) -> tuple[float, str]:
    """Splits a duration into its number and unit: "2 epochs" -> (2.0, "epoch").

    Raises:
      ValueError: if the text is no duration.
    """
    match = _DURATION.fullmatch(str(text).strip().replace("_", ""))
    if match is None:
        raise ValueError(
            f"config.{name}={text!r} is no duration: give steps (100), 2 epochs, 1e6 examples,"
            " 3e9 tokens or 1% (of the run)."
        )
    return float(match[1]), (match[2] or "step").rstrip("s")


def total_steps(config: ConfigDict, rows: tuple[int, ...]) -> int:
    """Updates of the whole run. `rows`: the training examples of each phase's sequence length."""
    phases = make_phases(config, steps=0)
    if config.epochs:
        done_by_a_step = sum(p.share * p.batch_size / n for p, n in zip(phases, rows, strict=True))
        return max(1, math.ceil(config.epochs / done_by_a_step))
    if config.examples:
        return max(1, math.ceil(config.examples / sum(p.share * p.batch_size for p in phases)))
    if config.tokens:
        tokens = sum(p.share * p.batch_size * p.sequence_length for p in phases)
        return max(1, math.ceil(config.tokens / tokens))
    return config.steps


def duration_steps(config: ConfigDict, name: str, phase: Phase, rows: int, steps: int) -> int:
    """A duration field in updates, as `phase` (with `rows` examples) counts them; at least 1.

    "0" is 0: never (for what happens every so often), or none (for the warm-up).
    """
    number, unit = parse_duration(value_of(config, name), name)
    one = {
        "step": 1.0,
        "example": 1 / phase.batch_size,
        "token": 1 / (phase.batch_size * phase.sequence_length),
        "epoch": rows / phase.batch_size,
        "%": steps / 100,
    }[unit]
    return max(1, round(number * one)) if number else 0


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
