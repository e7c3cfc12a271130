"""Validates the values of a configuration before a run starts. Does not import jax.

What only one part of the program can know (names of tasks, optimizers, sources, metrics) is
validated there.
"""

import math
import re
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.data import data_config
from bert_jax.config.encoders import ACTIVATIONS
from bert_jax.config.fields import fields, has_corpus, value_of
from bert_jax.config.phases import make_phases, parse_duration, phase_entries
from bert_jax.config.renames import check_names
from bert_jax.files.errors import UserError

# Numbers that may be 0; every other number must be positive.
_MAY_BE_ZERO = (
    "seed epochs examples tokens microbatch_size nonfinite_limit model.dropout_rate"
    " model.attention_dropout_rate model.attention_window model.global_every"
    " model.window_rotary_base"
    " model.type_vocab_size model.highway_layers model.cell_clip"
    " model.projection_clip data.seed data.short_seq_prob"
    " data.max_predictions_per_seq data.eval_masked_lm_prob data.final_masked_lm_prob"
    " data.mask_share data.keep_share data.random_share data.validation_share data.num_processes"
    " optimizer.weight_decay optimizer.clip_norm optimizer.beta1 optimizer.learning_rate"
    " eval.max_batches eval.batch_size eval.patience checkpoint.keep_best reinit_layers"
    " head.mix_l2 head.lm_weight head.dropout_rate published_score"
).split()
_BELOW_ZERO = ("model.mask_value",)
_BELOW_ONE = (
    "model.dropout_rate model.attention_dropout_rate data.short_seq_prob data.masked_lm_prob"
    " data.eval_masked_lm_prob data.final_masked_lm_prob"
    " data.validation_share optimizer.beta1 optimizer.beta2 optimizer.decay_fraction"
    " head.dropout_rate"
).split()
_DURATIONS = ("optimizer.warmup", "log.every", "eval.every", "checkpoint.every")
_CHOICES = {
    "dtype": ("float32", "bfloat16", "bfloat16_products"),
    "prng_impl": ("threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg"),
    "nonfinite": ("abort", "skip"),
    "model.activation": ACTIVATIONS,
    "checkpoint.use": ("newest", "best"),
}
# Of a configuration without `metrics`: what BERT's own task measures.
_PRETRAINING_METRICS = (
    "masked_lm_loss masked_lm_accuracy masked_lm_bits_per_character"
    " next_sentence_loss next_sentence_accuracy"
).split()


def check(config: ConfigDict) -> None:
    """Validates all fields.

    Raises:
      UserError: for a value that no run can use; names the field, its value and what is allowed.
    """
    check_values(config)
    if has_corpus(config):
        check_corpus(config)
    else:
        check_labelled(config)


def check_values(config: ConfigDict) -> None:
    """Validates the fields that every configuration has.

    Raises:
      UserError: see `check`.
    """
    check_names((name for name, _ in fields(config)), is_labelled=not has_corpus(config))
    for name, value in fields(config):
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(name, value)
    for name in _DURATIONS:
        parse_duration(value_of(config, name), name)
    for name, allowed in _CHOICES.items():
        _check_choice(name, value_of(config, name), allowed)
    given = [name for name in ("epochs", "examples", "tokens") if config[name]]
    if len(given) > 1:
        raise UserError(
            f"The length of training is given twice: config.{' and config.'.join(given)}."
        )
    _check_model(config.model)
    try:
        re.compile("|".join(config.optimizer.no_decay))
    except (re.error, TypeError) as error:
        raise UserError(
            f"config.optimizer.no_decay={config.optimizer.no_decay!r} are no regular expressions:"
            f" {error}."
        ) from None
    _check_restarts(config)
    for phase in make_phases(config, steps=100):
        if phase.sequence_length > config.model.max_position_embeddings:
            field = "max_length" if "max_length" in config else "phases"
            raise UserError(
                f"A sequence length of {phase.sequence_length} in config.{field} is above"
                f" config.model.max_position_embeddings={config.model.max_position_embeddings}."
            )
        if config.microbatch_size and phase.batch_size % config.microbatch_size:
            raise UserError(
                f"The global batch size {phase.batch_size} is not divisible by"
                f" config.microbatch_size={config.microbatch_size}."
            )


def check_corpus(config: ConfigDict) -> None:
    """Validates a configuration that trains on a corpus.

    Raises:
      UserError: see `check`; and for a configuration without a corpus.
    """
    if not has_corpus(config):
        raise UserError(
            f"config.task={config.task!r} trains on a corpus: use a configuration with"
            " config.data.source, such as configs/base.py."
        )
    data_config(config)
    _check_falling_rate(config.data)
    if config.model.next_sentence and config.data.segments != "pairs":
        raise UserError(
            "config.model.next_sentence=True needs config.data.segments='pairs', not"
            f" {config.data.segments!r}, which has no second segment: change one of the two."
        )
    best = config.checkpoint.best_metric
    known = ("loss", *config.get("metrics", _PRETRAINING_METRICS))
    _check_choice("checkpoint.best_metric", best, known)
    if not config.model.next_sentence and best.startswith("next_sentence"):
        raise UserError(
            f"config.checkpoint.best_metric={best!r} is not measured with"
            " config.model.next_sentence=False."
        )


def check_labelled(config: ConfigDict) -> None:
    """Validates a configuration that trains on labelled examples.

    Raises:
      UserError: see `check`; and for a configuration without a head.
    """
    if "head" not in config:
        raise UserError(
            f"config.task={config.task!r} trains on labelled examples: use a configuration with"
            " config.head, such as configs/classification.py."
        )
    if not config.metrics:
        raise UserError("config.metrics is empty: name a score, such as accuracy.")
    known = ("loss", *config.metrics)
    _check_choice("checkpoint.best_metric", config.checkpoint.best_metric, known)
    if config.data.batch_by not in ("rows", "tokens"):
        raise UserError(f"config.data.batch_by={config.data.batch_by!r} is not rows or tokens.")
    lengths = config.data.bucket_lengths
    are_numbers = all(type(length) is int for length in lengths)
    if not are_numbers or list(lengths) != sorted(set(lengths)) or min(lengths, default=1) < 1:
        raise UserError(
            f"config.data.bucket_lengths={lengths!r} are not ascending, positive sequence lengths."
        )
    if config.head.get("mix_layer_norm") and config.microbatch_size:
        raise UserError(
            "config.head.mix_layer_norm=True normalizes over a whole batch, which"
            f" config.microbatch_size={config.microbatch_size} splits: set one of the two to its"
            " default."
        )
    if config.reinit_layers > config.model.num_layers:
        raise UserError(
            f"config.reinit_layers={config.reinit_layers} is above"
            f" config.model.num_layers={config.model.num_layers}."
        )


def _check_model(model: ConfigDict) -> None:
    # Encoders other than BERT may have neither token types nor attention heads.
    if model.get("type_vocab_size", 2) == 1:
        raise UserError(
            "config.model.type_vocab_size=1 is too few: a row has two segments (0: no token types)."
        )
    if model.hidden_size % model.get("num_heads", 1):
        raise UserError(
            f"config.model.hidden_size={model.hidden_size} is not divisible by"
            f" config.model.num_heads={model.num_heads}."
        )


def _check_restarts(config: ConfigDict) -> None:
    phase_schedules = config.optimizer.phase_schedules
    pairs = [
        tuple(pair) for pair in phase_schedules if isinstance(pair, tuple | list) and len(pair) == 2
    ]
    numbers = [number for pair in pairs for number in pair]
    if (
        len(pairs) < len(phase_schedules)
        or not all(isinstance(number, int | float) for number in numbers)
        or not all(peak > 0 and 0 <= warmup < 1 for peak, warmup in pairs)
        or len(pairs) not in (0, len(phase_entries(config)))
    ):
        raise UserError(
            f"config.optimizer.phase_schedules={phase_schedules!r} is not a pair of a learning"
            " rate and a"
            " fraction below 1 of warm-up for each of config.phases, such as ((6e-3, 0.28), (4e-3,"
            " 0.13)): correct it, or () for one schedule over the whole run."
        )


def _check_falling_rate(data: ConfigDict) -> None:
    if not data.final_masked_lm_prob:
        return
    named = f"config.data.final_masked_lm_prob={data.final_masked_lm_prob}"
    if data.final_masked_lm_prob > data.masked_lm_prob:
        raise UserError(
            f"{named} is above config.data.masked_lm_prob={data.masked_lm_prob}, which it is to"
            " fall from: give a lower one, or 0 for a constant rate."
        )
    if data.mode != "dynamic":
        raise UserError(
            f"{named} needs config.data.mode='dynamic', not {data.mode!r}, whose masks are drawn"
            " before the run: set it to 0."
        )


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"config.{name}={value!r} is none of {', '.join(allowed)}.")


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise UserError(f"config.{name}={value} is not a finite number.")
    if name.startswith("mesh."):
        if value < 1 and value != -1:
            raise UserError(
                f"config.{name}={value} must be at least 1, or -1 for all remaining devices."
            )
    elif name == "optimizer.frozen_layers":
        if value < -1:
            raise UserError(f"config.{name}={value} must be at least 0, or -1 for all layers.")
    elif name == "head.null_threshold" or (name == "head.dropout_rate" and value == -1):
        pass
    elif name in _BELOW_ZERO:
        if value >= 0:
            raise UserError(f"config.{name}={value} must be below 0.")
    elif value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        least = "0 or above" if name in _MAY_BE_ZERO else "above 0"
        raise UserError(f"config.{name}={value} must be {least}.")
    if name in _BELOW_ONE and value >= 1:
        raise UserError(f"config.{name}={value} must be below 1.")
